// The inner attention by itself: who computes it, how much work it is, and how
// fast this machine could be.
#pragma once

#include "laga/core/config.h"
#include "laga/core/dtype.h"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace laga {

struct AttentionProblem {
  MlaConfig config; // widths, scale
  int64_t seq = 0;
  int64_t heads = 0;
  Dtype dtype = Dtype::kBf16;
  bool causal = true;
  uint64_t seed = 0;
};

/// Floating-point operations that the result needs, two per product of the
/// pairs that are seen: forward qk + v, backward 3 qk + 2 v (scores once more,
/// dP, dV, dK, dQ). Padding, masked pairs and up-projections are not counted.
double useful_flops_forward(const AttentionProblem& problem);
double useful_flops_backward(const AttentionProblem& problem);

/// One that computes it, on inputs made beforehand.
struct Contender {
  std::string name;
  std::function<void()> forward;
  std::function<void()> backward; // after a forward
};

/// Attention on keys and values that are there: "fused" and "sdpa" as the forms
/// use them; "ATen flash", the op alone on q, k and v that have been brought to
/// one width before the clock starts; "ATen math", which materialises scores,
/// only with `math`.
std::vector<Contender> attention_contenders(
    const AttentionProblem& problem, bool math);

/// LAGA's part: up-projection of the latent and attention, as "expand + fused"
/// and as "stream".
std::vector<Contender> latent_contenders(const AttentionProblem& problem);

/// Multiply-adds on registers, in all of `threads` threads at once, by the
/// instruction set that the kernels use for `dtype`.
struct MachinePeak {
  double flops_per_s = 0;
  double flops_per_s_alone = 0; // of one thread by itself
  double clock_hz = 0;          // of one thread: a chain of additions
  double flops_per_instruction = 0;
  std::string isa;
};
MachinePeak measure_peak(Dtype dtype, int threads);

} // namespace laga
