#include "laga/measure/accounting.h"

#include "laga/attention/inner/inner.h"
#include "laga/core/check.h"
#include "laga/measure/predicted_memory.h"
#include "laga/plan/bytes.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <utility>

namespace laga {

namespace {

// Every width differs from every other.
MlaConfig odd_config(int ranks) {
  MlaConfig config;
  config.name = "odd";
  config.hidden_size = 88;
  config.num_heads = int64_t{2} * ranks;
  config.q_lora_rank = ranks % 2 == 0 ? 48 : 0;
  config.kv_lora_rank = 40;
  config.qk_nope_head_dim = 24;
  config.qk_rope_head_dim = 16;
  config.v_head_dim = 20;
  if (ranks % 3 == 0) config.rope = RopeLayout::kNone;
  config.attention_bias = ranks % 4 == 0;
  return config;
}

int64_t largest_difference(
    const std::vector<Transfer>& predicted,
    const std::vector<Transfer>& measured) {
  std::map<std::pair<Phase, std::string>, int64_t> off;
  for (const Transfer& transfer : predicted)
    off[{transfer.phase, transfer.name}] -= transfer.bytes_sent;
  for (const Transfer& transfer : measured)
    off[{transfer.phase, transfer.name}] += transfer.bytes_sent;
  int64_t largest = 0;
  for (const auto& [key, bytes] : off)
    largest = std::max(largest, std::abs(bytes));
  return largest;
}

void judge_transfers(
    AccountedRun& result, const LayerTask& task, const LayerRun& run) {
  for (size_t i = 0; i < run.transfers.size(); ++i) {
    const int rank = run.first_rank + static_cast<int>(i);
    const std::vector<Transfer> predicted = predict_transfers(
        task.config,
        task.form,
        task.shape,
        {rank, run.node_of},
        {task.options.send_delta});
    result.transfers += static_cast<int>(predicted.size());
    result.byte_difference = std::max(
        result.byte_difference,
        largest_difference(predicted, run.transfers[i]));
    for (const std::string& line : differences(predicted, run.transfers[i]))
      result.failures.push_back(detail::concat("rank ", rank, ": ", line));
  }
}

void judge_memory(
    AccountedRun& result, const LayerTask& task, const LayerRun& run) {
  const MemoryTape tape =
      predicted_memory(task, threads_of_a_rank(task.shape.ranks));
  result.predicted_saved = tape.saved_bytes();
  result.predicted_peak = tape.peak_bytes();
  result.measured = *std::max_element(
      run.memory.begin(),
      run.memory.end(),
      [&](const MemoryBytes& a, const MemoryBytes& b) {
        const auto off = [&](const MemoryBytes& m) {
          return std::abs(m.saved - result.predicted_saved) +
                 std::abs(m.peak - result.predicted_peak);
        };
        return off(a) < off(b);
      });
  if (result.unexplained_saved() != 0) {
    result.failures.push_back(detail::concat(
        "predicted ",
        result.predicted_saved,
        " bytes saved; measured ",
        result.measured.saved));
  }
  if (std::abs(result.unexplained_peak()) * 100 > result.measured.peak) {
    result.failures.push_back(detail::concat(
        "predicted a peak of ",
        result.predicted_peak,
        " bytes; measured ",
        result.measured.peak));
  }
}

} // namespace

namespace {

std::vector<AccountingCase> odd_cases() {
  std::vector<AccountingCase> cases;
  for (const Dtype dtype : {Dtype::kBf16, Dtype::kFp32, Dtype::kFp64}) {
    for (int ranks = 1; ranks <= 8; ++ranks) {
      cases.push_back(
          {odd_config(ranks),
           {int64_t{24} * ranks, 1 + ranks % 3, ranks, dtype}});
    }
  }
  return cases;
}

AccountingCase narrow(AccountingCase wide) {
  MlaConfig& config = wide.config;
  config.name += ", d 256";
  config.hidden_size = 256;
  if (config.q_lora_rank > 0) config.q_lora_rank = 128;
  return wide;
}

} // namespace

// ATen's GEMMs of bf16 are a hundred times slower than those of fp32 on some
// processors: what has scores in it runs in fp32.
std::vector<AccountingCase> accounting_cases(AccountingSweep sweep) {
  const MlaConfig v2_lite = load_config("deepseek-v2-lite");
  const MlaConfig v3 = load_config("deepseek-v3");
  switch (sweep) {
    case AccountingSweep::kOdd:
      return odd_cases();
    case AccountingSweep::kNarrow:
      return {
          narrow({v2_lite, {256, 5, 1, Dtype::kFp32}, false}),
          narrow({v2_lite, {256, 10, 2, Dtype::kFp32}, false}),
          narrow({v3, {512, 3, 8, Dtype::kFp32}, true})};
    case AccountingSweep::kModels:
      return {
          {v2_lite, {2048, 1, 1, Dtype::kFp32}, false},
          {load_config("moonlight-16b-a3b"), {2048, 2, 4, Dtype::kFp32}, false},
          {load_config("glm-4.7-flash"), {1000, 3, 5, Dtype::kFp32}, false},
          {v3, {2048, 1, 8, Dtype::kBf16}, true},
          {load_config("kimi-k2"), {1024, 2, 4, Dtype::kFp32}, true}};
  }
  return {};
}

void account(
    const AccountingCase& a_case,
    const std::function<void(const AccountedRun&)>& report) {
  const RunShape& shape = a_case.shape;
  const LayerInputs inputs = make_inputs(
      a_case.config,
      a_case.ghost ? shape.local_seq() : shape.seq,
      shape.batch,
      shape.dtype,
      /*seed=*/0);
  const auto run_once = [&](const Form& form,
                            const std::string& inner,
                            bool send_delta) {
    const LayerTask task{
        a_case.config, form, shape, {.inner = inner, .send_delta = send_delta}};
    const LayerRun run = a_case.ghost ? run_ghost(task, inputs, 0, {})
                                      : run_on_threads(task, inputs);
    AccountedRun result{
        a_case.config.name,
        std::string(form.name),
        inner,
        shape,
        send_delta,
        a_case.ghost};
    judge_transfers(result, task, run);
    judge_memory(result, task, run);
    report(result);
  };
  for (const Form& form : kForms) {
    for (const std::string& inner : inners_for(form)) {
      run_once(form, inner, false);
      if (find_inner(inner).takes_delta) run_once(form, inner, true);
    }
  }
}

} // namespace laga
