#include "laga/measure/errors.h"

#include "laga/core/check.h"

#include <ATen/TensorOperators.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace laga {

namespace {

struct Extent {
  double difference = 0; // max |a - b|
  double size = 0;       // max |b|
};

// In pieces, so that comparing a gradient of 117 million numbers does not need
// four fp64 copies of it.
Extent extent(const at::Tensor& a, const at::Tensor& b) {
  LAGA_CHECK_EQ(a.sizes(), b.sizes(), "tensors to compare");
  constexpr int64_t kPiece = int64_t{1} << 20;
  const at::Tensor x = a.detach().reshape({-1});
  const at::Tensor y = b.detach().reshape({-1});
  Extent total;
  for (int64_t begin = 0; begin < x.size(0); begin += kPiece) {
    const int64_t count = std::min(kPiece, x.size(0) - begin);
    const at::Tensor u = x.narrow(0, begin, count).to(at::kDouble);
    const at::Tensor v = y.narrow(0, begin, count).to(at::kDouble);
    const double difference = (u - v).abs().max().item<double>();
    const double size = v.abs().max().item<double>();
    if (!std::isfinite(difference) || !std::isfinite(size)) {
      return {std::numeric_limits<double>::infinity(), 1};
    }
    total.difference = std::max(total.difference, difference);
    total.size = std::max(total.size, size);
  }
  return total;
}

NamedResults with_kv_a_parts(const MlaConfig& config, NamedResults results) {
  const std::string name = "grad.kv_a_proj_with_mqa.weight";
  const auto found = results.find(name);
  if (found == results.end()) return results;
  const at::Tensor whole = found->second;
  results[name + "[latent]"] = whole.narrow(0, 0, config.kv_lora_rank);
  results[name + "[k_pe]"] =
      whole.narrow(0, config.kv_lora_rank, config.qk_rope_head_dim);
  return results;
}

} // namespace

double relative_error(const at::Tensor& a, const at::Tensor& b) {
  const Extent found = extent(a, b);
  if (found.difference == 0) return 0;
  return found.difference / found.size; // infinity where b is all zero
}

double absolute_error(const at::Tensor& a, const at::Tensor& b) {
  return extent(a, b).difference;
}

std::vector<NamedError> relative_errors(
    const MlaConfig& config,
    const NamedResults& results,
    const NamedResults& reference) {
  const NamedResults ours = with_kv_a_parts(config, results);
  std::vector<NamedError> errors;
  for (const auto& [name, expected] : with_kv_a_parts(config, reference)) {
    const auto found = ours.find(name);
    LAGA_CHECK(found != ours.end(), "no result named ", name);
    errors.push_back({name, relative_error(found->second, expected)});
  }
  return errors;
}

NamedError worst_gradient(const std::vector<NamedError>& errors) {
  NamedError worst{"", -1};
  for (const NamedError& error : errors) {
    if (error.name != "output" && error.relative > worst.relative) {
      worst = error;
    }
  }
  return worst;
}

} // namespace laga
