// Multi-head latent attention on one rank, written to be obviously right: plain
// autograd operations in the order of the papers' equations, every tensor in
// full. It includes nothing of laga/attention, so that the two can judge each
// other.
#pragma once

#include "laga/core/config.h"

#include <ATen/core/Tensor.h>

#include <map>
#include <string>

namespace laga::reference {

using Tensors = std::map<std::string, at::Tensor>;

struct Problem {
  MlaConfig config;
  Tensors weights;   // by Hugging Face name, all of the dtype to compute in
  at::Tensor hidden; // [S, b, d]
  at::Tensor grad_output; // [S, b, d]
  at::Tensor positions;   // [S] or [S, b], int64
  bool causal = true;
};

/// DeepSeek-V2 (arXiv 2405.04434), equations 9-19 and appendix C. Returns
/// "output" [S, b, d], "grad.hidden_states" and "grad." + each weight's name.
/// Holds several [b, n, S, S] buffers.
Tensors solve(const Problem& problem);

/// With tensors converted to `dtype`.
Problem converted(const Problem& problem, at::ScalarType dtype);

} // namespace laga::reference
