#include "laga/attention/weights.h"

#include "laga/attention/dtype.h"
#include "laga/core/check.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/randn.h>

#include <cmath>

namespace laga {

namespace {

struct Slot {
  const char* name;
  at::Tensor Weights::*tensor;
};

constexpr Slot kSlots[] = {
    {"q_proj.weight", &Weights::q_proj},
    {"q_a_proj.weight", &Weights::q_a_proj},
    {"q_a_proj.bias", &Weights::q_a_proj_bias},
    {"q_a_layernorm.weight", &Weights::q_a_layernorm},
    {"q_b_proj.weight", &Weights::q_b_proj},
    {"kv_a_proj_with_mqa.weight", &Weights::kv_a_proj},
    {"kv_a_proj_with_mqa.bias", &Weights::kv_a_proj_bias},
    {"kv_a_layernorm.weight", &Weights::kv_a_layernorm},
    {"kv_b_proj.weight", &Weights::kv_b_proj},
    {"o_proj.weight", &Weights::o_proj},
    {"o_proj.bias", &Weights::o_proj_bias},
};

// FNV-1a: a stable mix of the name into the seed.
uint64_t seed_of(uint64_t seed, const std::string& name) {
  uint64_t hash = 14695981039346656037ULL ^ seed;
  for (const char letter : name) {
    hash = (hash ^ static_cast<unsigned char>(letter)) * 1099511628211ULL;
  }
  return hash;
}

at::Tensor draw(
    at::IntArrayRef sizes,
    Dtype dtype,
    uint64_t seed,
    const std::string& name) {
  const at::Generator generator =
      at::detail::createCPUGenerator(seed_of(seed, name));
  return at::randn(
      sizes, generator, dtype == Dtype::kFp64 ? at::kDouble : at::kFloat);
}

bool ends_with(const std::string& name, const std::string& end) {
  return name.size() >= end.size() &&
         name.compare(name.size() - end.size(), end.size(), end) == 0;
}

} // namespace

std::vector<NamedTensor> named(const Weights& weights) {
  std::vector<NamedTensor> tensors;
  for (const Slot& slot : kSlots) {
    const at::Tensor& tensor = weights.*slot.tensor;
    if (tensor.defined()) tensors.push_back({slot.name, tensor});
  }
  return tensors;
}

Weights weights_from(
    const MlaConfig& config, const std::vector<NamedTensor>& tensors) {
  const auto expected = parameters(config);
  for (const NamedTensor& given : tensors) {
    const bool known = std::any_of(
        expected.begin(), expected.end(), [&](const Parameter& parameter) {
          return parameter.name == given.name;
        });
    LAGA_CHECK(known, "unexpected tensor ", given.name, " for ", config.name);
    LAGA_CHECK_EQ(
        given.tensor.scalar_type(),
        tensors.front().tensor.scalar_type(),
        given.name,
        " and ",
        tensors.front().name);
  }
  Weights weights;
  for (const Parameter& parameter : expected) {
    const auto given = std::find_if(
        tensors.begin(), tensors.end(), [&](const NamedTensor& tensor) {
          return tensor.name == parameter.name;
        });
    LAGA_CHECK(
        given != tensors.end(),
        "missing tensor ",
        parameter.name,
        " of ",
        config.name);
    LAGA_CHECK_EQ(
        given->tensor.sizes(),
        at::IntArrayRef(parameter.shape),
        parameter.name);
    for (const Slot& slot : kSlots) {
      if (parameter.name == slot.name) weights.*slot.tensor = given->tensor;
    }
  }
  return weights;
}

Weights make_weights(const MlaConfig& config, Dtype dtype, uint64_t seed) {
  std::vector<NamedTensor> tensors;
  for (const Parameter& parameter : parameters(config)) {
    at::Tensor tensor = draw(parameter.shape, dtype, seed, parameter.name);
    if (parameter.shape.size() == 2) {
      tensor.mul_(1 / std::sqrt(static_cast<double>(parameter.shape[1])));
    } else {
      tensor.mul_(0.1);
      if (ends_with(parameter.name, "layernorm.weight")) tensor.add_(1);
    }
    tensors.push_back({parameter.name, tensor.to(torch_dtype(dtype))});
  }
  return weights_from(config, tensors);
}

at::Tensor make_normal(
    at::IntArrayRef sizes,
    Dtype dtype,
    uint64_t seed,
    const std::string& name) {
  return draw(sizes, dtype, seed, name).to(torch_dtype(dtype));
}

Weights as_leaves(const Weights& weights) {
  Weights leaves;
  for (const Slot& slot : kSlots) {
    const at::Tensor& tensor = weights.*slot.tensor;
    if (tensor.defined()) {
      leaves.*slot.tensor = tensor.detach().requires_grad_(true);
    }
  }
  return leaves;
}

} // namespace laga
