// The layer's parameters under their Hugging Face names.
#pragma once

#include "laga/core/config.h"
#include "laga/core/dtype.h"

#include <ATen/core/Tensor.h>

#include <string>
#include <utility>
#include <vector>

namespace laga {

/// Shapes as parameters() lists them; what a config lacks is undefined.
struct Weights {
  at::Tensor q_proj;         // without q_lora: [n qk, d]
  at::Tensor q_a_proj;       // [q_lora, d]
  at::Tensor q_a_proj_bias;  // [q_lora]
  at::Tensor q_a_layernorm;  // [q_lora]
  at::Tensor q_b_proj;       // [n qk, q_lora]
  at::Tensor kv_a_proj;      // kv_a_proj_with_mqa [c + r, d], latent rows first
  at::Tensor kv_a_proj_bias; // [c + r]
  at::Tensor kv_a_layernorm; // [c]
  at::Tensor kv_b_proj;   // [n (nope + v), c], per head nope rows, then v rows
  at::Tensor o_proj;      // [d, n v]
  at::Tensor o_proj_bias; // [d]
};

struct NamedTensor {
  std::string name; // "kv_b_proj.weight"
  at::Tensor tensor;
};

/// The defined ones, in parameters()'s order and under its names.
std::vector<NamedTensor> named(const Weights& weights);

/// The inverse of named. Throws InvalidArgument naming a missing, unknown or
/// wrongly shaped tensor, or one of another dtype than the first.
Weights weights_from(
    const MlaConfig& config, const std::vector<NamedTensor>& tensors);

/// Matrices N(0, 1) / sqrt(fan-in), norms 1 + 0.1 N(0, 1), biases 0.1 N(0, 1).
/// Each parameter is drawn from a generator of its own, seeded by `seed` and
/// its name, so they depend on nothing else; in fp64 for fp64, else in fp32 and
/// rounded.
Weights make_weights(const MlaConfig& config, Dtype dtype, uint64_t seed);

/// N(0, 1) drawn the same way: hidden states, upstream gradients.
at::Tensor make_normal(
    at::IntArrayRef sizes, Dtype dtype, uint64_t seed, const std::string& name);

/// The same storage as leaves of a graph of their own: ranks that shared a leaf
/// would sum its gradient in racing order.
Weights as_leaves(const Weights& weights);

} // namespace laga
