#include "laga/plan/bytes.h"

#include "laga/core/check.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

namespace laga {
namespace {

MlaConfig v3() {
  MlaConfig config;
  config.name = "deepseek-v3";
  config.hidden_size = 7168;
  config.num_heads = 128;
  config.q_lora_rank = 1536;
  config.kv_lora_rank = 512;
  config.qk_nope_head_dim = 128;
  config.qk_rope_head_dim = 64;
  config.v_head_dim = 128;
  return config;
}

int64_t sent(const std::vector<Transfer>& transfers, Phase phase) {
  int64_t bytes = 0;
  for (const Transfer& transfer : transfers) {
    if (transfer.phase == phase) bytes += transfer.bytes_sent;
  }
  return bytes;
}

std::vector<Transfer> predict(
    const char* form, int64_t seq, int ranks, const Place& place = {}) {
  return predict_transfers(
      v3(), find_form(form), {seq, 1, ranks, Dtype::kBf16}, place);
}

// Numbers a rank sends for each of its tokens, from the closed forms of the
// paper's section 3 counted as bytes that really leave a rank.
TEST(PredictTransfers, V3ElementsPerLocalTokenMatchTheClosedForms) {
  const std::map<std::string, std::vector<int64_t>> expected{
      {"explicit", {40960, 61440, 71680, 76800}},
      {"explicit-compact", {36928, 55488, 64960, 70080}},
      {"absorbed", {21056, 32448, 39872, 47040}},
      {"laga", {21056, 32448, 39872, 47040}},
  };
  for (const auto& [form, numbers] : expected) {
    for (size_t i = 0; i < numbers.size(); ++i) {
      const int ranks = 2 << i;
      const auto transfers = predict(form.c_str(), 4096, ranks);
      const int64_t local_bytes = 4096 / ranks * 2;
      EXPECT_EQ(sent(transfers, Phase::kForward), numbers[i] * local_bytes)
          << form << " P=" << ranks;
      EXPECT_EQ(sent(transfers, Phase::kBackward), numbers[i] * local_bytes)
          << form << " P=" << ranks;
    }
  }
}

TEST(PredictTransfers, V3AtSequence1024OverFourRanks) {
  EXPECT_EQ(sent(predict("explicit", 1024, 4), Phase::kForward), 31457280);
  EXPECT_EQ(sent(predict("laga", 1024, 4), Phase::kForward), 16613376);
  EXPECT_EQ(
      sent(predict("explicit", 1024, 4), Phase::kWeightGradients), 561321984);
  // kv_b's rows have one owner each: gathered, half of an all-reduce's bytes.
  EXPECT_EQ(
      sent(predict("laga", 1024, 4), Phase::kWeightGradients),
      561321984 - 32768 * 512 * 2 * 3 / 4);
}

TEST(PredictTransfers, LagaSendsMoreThanExplicitBeyond71Ranks) {
  const auto forward = [](const char* form, int ranks) {
    return sent(predict(form, 8192, ranks), Phase::kForward);
  };
  EXPECT_LT(forward("laga", 64), forward("explicit", 64));
  EXPECT_GT(forward("laga", 128), forward("explicit", 128));
}

TEST(PredictTransfers, PayloadCountsAGatheredShardOnce) {
  const auto transfers = predict("laga", 1024, 4);
  const auto latent = std::find_if(
      transfers.begin(), transfers.end(), [](const Transfer& transfer) {
        return transfer.name == "latent";
      });
  ASSERT_NE(latent, transfers.end());
  EXPECT_EQ(latent->op, "all_gather");
  EXPECT_EQ(latent->payload_bytes, 576 * 256 * 2);
  EXPECT_EQ(latent->bytes_sent, 3 * 576 * 256 * 2);
}

TEST(PredictTransfers, OneRankSendsNothing) {
  for (const Form& form : kForms) {
    EXPECT_TRUE(predict(form.name.data(), 64, 1).empty());
  }
}

TEST(PredictTransfers, BytesAcrossNodesAreThosePeersShares) {
  const auto transfers = predict("explicit", 1024, 4, {1, {0, 0, 1, 1}});
  for (const Transfer& transfer : transfers) {
    if (transfer.phase == Phase::kWeightGradients) continue;
    EXPECT_EQ(transfer.bytes_sent_across_nodes * 3, transfer.bytes_sent * 2)
        << transfer.name;
  }
}

TEST(PredictTransfers, UnevenSharesOfAWeightGradientAddUpOverRanks) {
  MlaConfig config = v3();
  config.hidden_size = 7;
  config.num_heads = 3;
  config.kv_lora_rank = 5;
  const RunShape shape{3, 1, 3, Dtype::kFp64};
  int64_t total = 0;
  for (int rank = 0; rank < 3; ++rank) {
    total += sent(
        predict_transfers(config, find_form("explicit"), shape, {rank, {}}),
        Phase::kWeightGradients);
  }
  int64_t numbers = 0;
  for (const Parameter& parameter : parameters(config)) {
    numbers += parameter.numel();
  }
  EXPECT_EQ(total, 2 * numbers * 8 * (3 - 1));
}

TEST(CheckShape, NamesTheConstraintAndTheRanksThatWork) {
  try {
    predict("laga", 1024, 3);
    FAIL() << "3 ranks were accepted for 128 heads";
  } catch (const InvalidArgument& error) {
    const std::string message = error.what();
    EXPECT_NE(message.find("num_heads % ranks"), std::string::npos) << message;
    EXPECT_NE(message.find("1, 2, 4, 8, 16"), std::string::npos) << message;
  }
  EXPECT_THROW(predict("laga", 1022, 4), InvalidArgument);
  EXPECT_THROW(predict("laga", 0, 1), InvalidArgument);
  EXPECT_THROW(predict("laga", 64, 0), InvalidArgument);
  EXPECT_THROW(predict("laga", 64, 4, {4, {}}), InvalidArgument);
  EXPECT_THROW(predict("laga", 64, 4, {0, {0, 1}}), InvalidArgument);
}

} // namespace
} // namespace laga
