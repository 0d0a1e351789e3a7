// How far results are from a reference.
#pragma once

#include "laga/core/config.h"

#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <vector>

namespace laga {

/// By name: "output", "grad.hidden_states", "grad.kv_b_proj.weight", ...
using NamedResults = std::map<std::string, at::Tensor>;

/// max |a - b| / max |b|, in fp64. 0 where both are all zero; infinity where
/// only b is, or anything is not finite. Throws InvalidArgument where the
/// shapes differ.
double relative_error(const at::Tensor& a, const at::Tensor& b);

/// max |a - b|, in fp64; infinity where anything is not finite.
double absolute_error(const at::Tensor& a, const at::Tensor& b);

struct NamedError {
  std::string name;
  double relative;
};

/// The relative error of every tensor of `reference`, sorted by name. The
/// gradient of kv_a_proj_with_mqa is judged by its latent rows and its k_pe
/// rows as well ("...weight[latent]", "...weight[k_pe]"): a k_pe gradient that
/// was not summed over heads or ranks hides in the whole. Throws
/// InvalidArgument naming a tensor that `results` lacks.
std::vector<NamedError> relative_errors(
    const MlaConfig& config,
    const NamedResults& results,
    const NamedResults& reference);

/// The largest of all but "output"; an empty name where there is none.
NamedError worst_gradient(const std::vector<NamedError>& errors);

/// A 128-bit hash (XXH3) of the tensors' bytes in the order of their names, as
/// 32 hexadecimal digits: equal digests mean equal bits.
std::string digest(const NamedResults& results);

} // namespace laga
