#include "laga/plan/plan.h"

#include "laga/core/check.h"
#include "laga/plan/planned_forms.h"

#include <gtest/gtest.h>

#include <map>

namespace laga {
namespace {

PlanQuery query(const char* model, int64_t seq, int ranks) {
  PlanQuery query;
  query.config = load_config(model);
  query.shape = {seq, 1, ranks, Dtype::kBf16};
  return query;
}

const PlanRow& row(const std::vector<PlanRow>& rows, const std::string& name) {
  for (const PlanRow& row : rows) {
    if (row.name() == name) return row;
  }
  throw InvalidArgument("no row " + name);
}

int64_t sent(const std::vector<Transfer>& transfers, Phase phase) {
  int64_t bytes = 0;
  for (const Transfer& transfer : transfers)
    bytes += transfer.phase == phase ? transfer.bytes_sent : 0;
  return bytes;
}

// Numbers a rank sends for each of its tokens in the forward (paper.md's closed
// forms; a node of P ranks).
TEST(PlannedForms, SendWhatTheirFormulasSay) {
  const MlaConfig v3 = load_config("deepseek-v3");
  const std::map<std::string, std::vector<int64_t>> expected{
      {"kv ring", {40960, 122880, 286720, 614400}},
      {"kv all-gather", {40960, 122880, 286720, 614400}},
      {"query-latent", {10304, 18624, 29120, 47040}}};
  for (int i = 0; i < 4; ++i) {
    const int ranks = 2 << i;
    for (const PlannedForm& form :
         planned_forms(v3, {4096, 1, ranks, Dtype::kBf16}, ranks)) {
      const auto found = expected.find(form.name);
      if (found == expected.end()) continue;
      EXPECT_EQ(
          sent(form.transfers, Phase::kForward),
          found->second[static_cast<size_t>(i)] * (4096 / ranks) * 2)
          << form.name << " P=" << ranks;
    }
  }
}

// Two nodes of eight: only the latent crosses, once to the other node.
TEST(PlannedForms, TheGridSendsOneLatentToEachOtherNode) {
  const auto forms =
      planned_forms(load_config("deepseek-v3"), {4096, 1, 16, Dtype::kBf16}, 8);
  const PlannedForm& grid = forms.back();
  EXPECT_EQ(grid.name, "grid 8 x 2");
  int64_t across = 0;
  for (const Transfer& transfer : grid.transfers)
    across += transfer.bytes_sent_across_nodes;
  EXPECT_EQ(across, 2 * 576 * (4096 / 16) * 2);
  // Both nodes expand the same heads.
  EXPECT_DOUBLE_EQ(
      redundant_flops(grid.work), 3 * 0.5 * 2.0 * 4096 * 512 * 16 * 256);
}

TEST(Work, OfOneRankAddsUpOverRanks) {
  const MlaConfig v3 = load_config("deepseek-v3");
  for (const Form& form : kForms) {
    const auto total = [&](int ranks) {
      const auto work =
          predict_work(v3, form, "fused", {4096, 1, ranks, Dtype::kBf16});
      return flops_in(work, Phase::kForward) * ranks;
    };
    EXPECT_DOUBLE_EQ(total(1), total(8)) << form.name;
  }
  // 2 (192 + 128) a head and pair, and the five projections of a token.
  const auto work =
      predict_work(v3, find_form("laga"), "fused", {4096, 1, 1, Dtype::kBf16});
  const double pairs = 4096.0 * 4097 / 2;
  const double weights = 7168 * 1536.0 + 1536 * 128 * 192.0 + 7168 * 576.0 +
                         512 * 128 * 256.0 + 128 * 128 * 7168.0;
  EXPECT_DOUBLE_EQ(
      flops_in(work, Phase::kForward),
      2 * 320 * 128 * pairs + 2 * 4096 * weights);
  EXPECT_EQ(redundant_flops(work), 0);
}

TEST(Work, StreamExpandsOnceMore) {
  const auto work = predict_work(
      load_config("deepseek-v3"),
      find_form("laga"),
      "stream",
      {4096, 1, 8, Dtype::kBf16});
  EXPECT_DOUBLE_EQ(redundant_flops(work), 2.0 * 4096 * 512 * 16 * 256);
}

System slow_network() {
  System system = load_system("h100-ib");
  system.ranks_per_node = 16;
  for (auto& [op, link] : system.within_node)
    link = {0, 0, {{{1, 0.01}}}};
  return system;
}

TEST(Plan, OnBytesAloneV2LiteAt16RanksIsNotForLaga) {
  const auto rows =
      make_plan(query("deepseek-v2-lite", 4096, 16), slow_network());
  const double laga = static_cast<double>(
      sent(row(rows, "laga stream").transfers, Phase::kForward));
  const double full = static_cast<double>(
      sent(row(rows, "explicit fused").transfers, Phase::kForward));
  EXPECT_NEAR(laga / full, 1.40, 0.005);
  const PlanRow* best = recommended(rows);
  ASSERT_NE(best, nullptr);
  EXPECT_EQ(best->form.rfind("explicit", 0), 0U) << best->name();
  // V3's 128 heads: there LAGA sends less.
  const auto v3 = make_plan(query("deepseek-v3", 4096, 16), slow_network());
  EXPECT_EQ(recommended(v3)->form, "laga");
}

// Break-even P = n (qk + v) / (c + r) is 71 for V3; t tensor-parallel ranks
// leave n / t heads: 36, 18, 9.
TEST(Plan, TensorParallelismMovesTheBreakEven) {
  const auto laga_sends_less = [](int ranks, int tp) {
    PlanQuery q = query("deepseek-v3", 8192, ranks);
    q.tp = tp;
    const auto rows = make_plan(q, load_system("h100-ib"));
    return sent(row(rows, "laga fused").transfers, Phase::kForward) <
           sent(row(rows, "explicit fused").transfers, Phase::kForward);
  };
  EXPECT_TRUE(laga_sends_less(64, 1));
  EXPECT_FALSE(laga_sends_less(128, 1));
  EXPECT_TRUE(laga_sends_less(32, 2));
  EXPECT_FALSE(laga_sends_less(64, 2));
  EXPECT_TRUE(laga_sends_less(16, 4));
  EXPECT_FALSE(laga_sends_less(32, 4));
  EXPECT_TRUE(laga_sends_less(8, 8));
  EXPECT_FALSE(laga_sends_less(16, 8));
}

TEST(Plan, ALessMemoryLimitRulesRowsOut) {
  PlanQuery q = query("deepseek-v3", 131072, 64);
  q.layers = 61;
  const System system = load_system("h100-ib");
  const auto rows = make_plan(q, system);
  const double stream = row(rows, "laga stream").memory;
  EXPECT_LT(stream, row(rows, "laga fused").memory);
  q.memory_limit = stream;
  const auto tight = make_plan(q, system);
  EXPECT_FALSE(row(tight, "laga fused").fits);
  EXPECT_EQ(row(tight, "laga fused").limit, "memory");
  EXPECT_TRUE(row(tight, "laga stream").fits);
}

TEST(Plan, KeepingTheShardSavesTheOthers) {
  const auto rows =
      make_plan(query("deepseek-v3", 131072, 64), load_system("h100-ib"));
  const PlanRow& keep = row(rows, "laga stream");
  const PlanRow& again = row(rows, "laga stream, gathered again");
  // 151 MB gathered on every rank; the shard of it stays.
  EXPECT_EQ(
      keep.tape.saved_bytes() - again.tape.saved_bytes(),
      576 * (131072 - 131072 / 64) * 2);
  EXPECT_EQ(
      sent(again.transfers, Phase::kBackward),
      sent(keep.transfers, Phase::kBackward) + 63 * 576 * (131072 / 64) * 2);
}

TEST(Plan, ExposesOnlyWhatNothingHides) {
  const auto rows =
      make_plan(query("deepseek-v3", 131072, 64), load_system("h100-ib"));
  for (const PlanRow& row : rows) {
    if (!row.why_not.empty()) continue;
    EXPECT_LE(row.seconds.exposed, row.seconds.communication) << row.name();
    EXPECT_GT(row.seconds.computing(), 0) << row.name();
  }
}

TEST(Plan, SaysWhatARowNeeds) {
  const auto rows =
      make_plan(query("deepseek-v2-lite", 8192, 32), load_system("h100-ib"));
  EXPECT_EQ(
      row(rows, "laga stream").why_not, "32 ranks do not divide 16 heads");
  EXPECT_EQ(
      row(rows, "query-latent").why_not, "needs a model with q_lora_rank");
  EXPECT_EQ(row(rows, "grid 8 x 4").why_not, "");
  EXPECT_EQ(recommended(rows), nullptr);
}

TEST(Plan, NamesWhatIsWrongWithAQuery) {
  const auto message = [](const PlanQuery& bad) -> std::string {
    try {
      make_plan(bad, load_system("h100-ib"));
    } catch (const InvalidArgument& error) {
      return error.what();
    }
    return "accepted";
  };
  PlanQuery q = query("deepseek-v3", 1000, 64);
  EXPECT_NE(message(q).find("1000 % 64"), std::string::npos) << message(q);
  q = query("deepseek-v3", 4096, 8);
  q.tp = 3;
  EXPECT_NE(message(q).find("tp 3"), std::string::npos) << message(q);
  q.tp = 1;
  q.shape.ranks = 0;
  EXPECT_NE(message(q).find("ranks"), std::string::npos) << message(q);
  q.shape.ranks = 8;
  q.other_bytes = -1;
  EXPECT_NE(message(q).find("other_bytes -1"), std::string::npos) << message(q);
}

} // namespace
} // namespace laga
