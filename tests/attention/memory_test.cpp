// Memory is an exact number: what is saved for the backward is a list of named
// tensors, and nothing else.
#include "laga/attention/memory.h"

#include <ATen/ops/empty.h>

#include <gtest/gtest.h>

#include <thread>

#include "tests/attention/support.h"

namespace laga {
namespace {

int64_t activations(const MemoryAccount& account) {
  return account.current(MemoryUse::kActivations);
}

TEST(MemoryAccount, CountsBytesWhereTheyWereAskedFor) {
  MemoryAccount& account = MemoryAccount::open();
  at::Tensor kept;
  {
    const ChargeTo charge(&account);
    kept = at::empty({1000}, at::kByte);
    const at::Tensor gone = at::empty({500}, at::kByte);
    EXPECT_EQ(activations(account), 1500);
    const ChargeTo nobody(nullptr);
    const at::Tensor weights = at::empty({70}, at::kByte);
    EXPECT_EQ(activations(account), 1500);
  }
  const at::Tensor outside = at::empty({70}, at::kByte);
  EXPECT_EQ(activations(account), 1000);
  EXPECT_EQ(account.peak(MemoryUse::kActivations), 1500);
  std::thread([&] { kept.reset(); }).join(); // freed by another thread
  EXPECT_EQ(activations(account), 0);
}

TEST(MemoryAccount, KeepsWeightGradientsApart) {
  MemoryAccount& account = MemoryAccount::open();
  const ChargeTo charge(&account);
  const ChargeWeightGradients gradients;
  const at::Tensor gradient = at::empty({64}, at::kByte);
  EXPECT_EQ(account.current(MemoryUse::kWeightGradients), 64);
  EXPECT_EQ(activations(account), 0);
}

// Of the accumulator's type.
int64_t wide_size_of(Dtype dtype) {
  return dtype == Dtype::kFp64 ? 8 : 4;
}

// Bytes that an inner attention keeps besides its inputs.
int64_t saved_by_inner(
    const std::string& inner,
    const MlaConfig& c,
    const Form& form,
    const RunShape& run) {
  const int64_t rows = run.batch * c.num_heads / run.ranks * run.seq;
  if (inner == "eager") return rows * run.seq * size_of(run.dtype);
  // The log-sum-exp, and the output, which in latent space is there anyway.
  const int64_t width = form.space == ScoreSpace::kHead ? c.v_head_dim : 0;
  return rows * (width * size_of(run.dtype) + wide_size_of(run.dtype));
}

// Numbers alive after the forward, by the tensors that hold them, the inner
// attention's own left out.
int64_t saved_numbers(
    const std::string& inner,
    const MlaConfig& c,
    const Form& form,
    const RunShape& run) {
  const int64_t s = run.local_seq() * run.batch; // local tokens
  const int64_t S = run.seq * run.batch;         // all tokens
  const int64_t h = c.num_heads / run.ranks;
  const int64_t latent = c.kv_lora_rank + c.qk_rope_head_dim;
  const int64_t kv = c.qk_nope_head_dim + c.v_head_dim;
  int64_t numbers = 0;
  numbers += s * c.q_lora_rank * 2;          // before and after the norm
  numbers += s * latent;                     // kv_a's result, before the norm
  numbers += S * h * c.qk_head_dim();        // q
  numbers += s * c.num_heads * c.v_head_dim; // heads returned, unpacked
  numbers += s * c.hidden_size;              // the output
  if (form.key == KeyPath::kLatent) {
    numbers += S * latent; // gathered
  } else {
    numbers += s * latent; // own, normed and rotated
    numbers += S * h * kv;
    numbers +=
        S * c.qk_rope_head_dim * (form.key == KeyPath::kHeads ? h : 1); // k_pe
  }
  const bool expands =
      form.key == KeyPath::kLatent && form.space == ScoreSpace::kHead;
  if (expands && find_inner(inner).forward_latent == nullptr) {
    numbers += S * h * kv; // K and V of H_r
  }
  if (form.space == ScoreSpace::kLatent) {
    numbers += 2 * S * h * c.kv_lora_rank; // absorbed queries and output
  }
  return numbers;
}

class InnerMemory : public testing::TestWithParam<std::string> {};

TEST_P(InnerMemory, SavedIsExactlyTheNamedTensors) {
  const MlaConfig config = small_config();
  for (const Dtype dtype : {Dtype::kBf16, Dtype::kFp64}) {
    const LayerInputs inputs = make_inputs(config, 32, 3, dtype, 0);
    for (const Form& form : forms_for(GetParam())) {
      for (const int ranks : {2, 4}) {
        const RunShape shape{32, 3, ranks, dtype};
        const LayerRun run = run_on_threads(
            {config, form, shape, {.inner = GetParam()}}, inputs, {60});
        // And 1 / rms of each local token, for two norms.
        const int64_t expected =
            saved_numbers(GetParam(), config, form, shape) * size_of(dtype) +
            saved_by_inner(GetParam(), config, form, shape) +
            2 * shape.local_seq() * shape.batch * wide_size_of(dtype);
        for (const MemoryBytes& memory : run.memory) {
          EXPECT_EQ(memory.saved, expected)
              << form.name << " P=" << ranks << " " << name_of(dtype);
        }
      }
    }
  }
}

// Twice the tokens, at most twice the peak. (What does keep scores is judged by
// EagerPeaksAtThreeScoreBuffers.)
TEST_P(InnerMemory, PeakIsLinearInTheSequenceUnlessScoresAreKept) {
  if (find_inner(GetParam()).score_buffers > 0) return;
  const MlaConfig config = small_config();
  for (const Form& form : forms_for(GetParam())) {
    const auto peak = [&](int64_t S) {
      const LayerRun run = run_on_threads(
          {config, form, {S, 1, 4, Dtype::kFp32}, {.inner = GetParam()}},
          make_inputs(config, S, 1, Dtype::kFp32, 0),
          {60});
      return run.memory[0].peak;
    };
    EXPECT_LE(peak(2048), 2 * peak(1024)) << form.name;
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, InnerMemory, testing::ValuesIn(inner_names()), [](const auto& test) {
      return test_name(test.param);
    });

TEST(Memory, WeightGradientsTakeWhatWeightsTake) {
  MlaConfig config = small_config();
  config.attention_bias = true;
  int64_t numbers = 0;
  for (const Parameter& parameter : parameters(config)) {
    numbers += parameter.numel();
  }
  const LayerInputs inputs = make_inputs(config, 32, 1, Dtype::kFp32, 0);
  for (const Form& form : kForms) {
    const LayerRun run = run_on_threads(
        {config, form, {32, 1, 4, Dtype::kFp32}, {}}, inputs, {60});
    for (const MemoryBytes& memory : run.memory) {
      EXPECT_EQ(memory.weights, numbers * 4) << form.name;
      EXPECT_EQ(memory.weight_gradients, numbers * 4) << form.name;
    }
  }
}

// Scores dominate: eager holds three [b, n / P, S, S] buffers at its peak, in
// every form (the paper's fits say 3.00 for Explicit and LAGA).
TEST(Memory, EagerPeaksAtThreeScoreBuffers) {
  MlaConfig config = small_config();
  config.q_lora_rank = 0;
  const int64_t S = 512;
  const LayerInputs inputs = make_inputs(config, S, 1, Dtype::kBf16, 0);
  for (const Form& form : kForms) {
    const LayerRun run = run_on_threads(
        {config, form, {S, 1, 4, Dtype::kBf16}, {.inner = "eager"}},
        inputs,
        {60});
    const double buffer = 2.0 * S * S * 2;
    const double buffers = static_cast<double>(run.memory[0].peak) / buffer;
    EXPECT_GE(buffers, 3.0) << form.name;
    EXPECT_LE(buffers, 3.6) << form.name; // the rest is linear in S
  }
}

} // namespace
} // namespace laga
