#include "laga/attention/weights_file.h"

#include "laga/attention/dtype.h"
#include "laga/core/check.h"
#include "laga/core/checkpoint.h"

#include <ATen/ops/empty.h>

#include <array>
#include <set>
#include <vector>

namespace laga {

namespace {

struct TorchDtype {
  const char* stored;
  at::ScalarType torch;
};

constexpr std::array kTorchDtypes{
    TorchDtype{"BF16", at::kBFloat16},
    TorchDtype{"F32", at::kFloat},
    TorchDtype{"F64", at::kDouble},
    TorchDtype{"I64", at::kLong}};

[[noreturn]] void refuse_tensor(
    const std::string& path, const std::string& name, const std::string& what) {
  throw InvalidArgument(
      detail::concat("[read_tensor] ", path, ": ", name, ": ", what));
}

at::ScalarType torch_dtype_of(
    const SafetensorsReader& file, const std::string& name) {
  const std::string& stored = file.at(name).dtype;
  for (const TorchDtype& dtype : kTorchDtypes) {
    if (stored == dtype.stored) return dtype.torch;
  }
  refuse_tensor(
      file.path(),
      name,
      "dtype " + stored +
          " is not one to compute with. Known: BF16, F32, F64, I64");
}

const char* stored_dtype_of(const NamedTensor& given) {
  for (const TorchDtype& dtype : kTorchDtypes) {
    if (given.tensor.scalar_type() == dtype.torch) return dtype.stored;
  }
  throw InvalidArgument(detail::concat(
      "[save_weights] ",
      given.name,
      ": no file has ",
      c10::toString(given.tensor.scalar_type())));
}

// "q_b_proj" of "q_b_proj.weight".
std::string module_of(const std::string& name) {
  return name.substr(0, name.find('.'));
}

// A tensor of the layer's own modules that would go unread changes what the
// layer computes. What else has the prefix (an old rotary_emb.inv_freq) does
// not.
void check_nothing_is_left(
    const MlaConfig& config,
    const Checkpoint& checkpoint,
    const std::string& prefix) {
  std::set<std::string> modules{"q_proj", "q_a_proj", "q_a_layernorm"};
  std::set<std::string> expected;
  for (const Parameter& parameter : parameters(config)) {
    expected.insert(parameter.name);
    modules.insert(module_of(parameter.name));
  }
  for (const std::string& name : checkpoint.names()) {
    if (name.compare(0, prefix.size(), prefix) != 0) continue;
    const std::string rest = name.substr(prefix.size());
    if (modules.count(module_of(rest)) > 0 && expected.count(rest) == 0) {
      refuse_tensor(
          checkpoint.path(),
          name,
          "the config of " + config.name + " has no such");
    }
  }
}

} // namespace

at::Tensor read_tensor(const SafetensorsReader& file, const std::string& name) {
  at::Tensor tensor = at::empty(
      file.at(name).shape, at::TensorOptions(torch_dtype_of(file, name)));
  file.read(name, tensor.mutable_data_ptr());
  return tensor;
}

at::Tensor read_tensor(
    const SafetensorsReader& file,
    const std::string& name,
    at::IntArrayRef expected) {
  const at::IntArrayRef shape(file.at(name).shape);
  if (shape != expected) {
    refuse_tensor(
        file.path(),
        name,
        detail::concat(
            "shape must be ", expected, " (the file has ", shape, ")"));
  }
  return read_tensor(file, name);
}

Weights load_weights(
    const MlaConfig& config,
    const std::string& path,
    Dtype dtype,
    const std::string& layer) {
  Checkpoint checkpoint(path);
  const std::string prefix = find_layer_prefix(checkpoint, layer);
  check_nothing_is_left(config, checkpoint, prefix);
  std::vector<NamedTensor> tensors;
  for (const Parameter& parameter : parameters(config)) {
    const std::string name = prefix + parameter.name;
    const SafetensorsReader& file = checkpoint.file_of(name);
    const at::Tensor tensor = read_tensor(file, name, parameter.shape);
    if (!tensor.is_floating_point()) {
      refuse_tensor(file.path(), name, "a weight cannot be of dtype I64");
    }
    tensors.push_back({parameter.name, tensor.to(torch_dtype(dtype))});
  }
  return weights_from(config, tensors);
}

void save_weights(
    const std::string& path,
    const Weights& weights,
    const SafetensorsMetadata& metadata) {
  std::vector<at::Tensor> rows; // owns what `tensors` points at
  std::vector<TensorBytes> tensors;
  for (const NamedTensor& given : named(weights)) {
    rows.push_back(given.tensor.contiguous());
    tensors.push_back(
        {given.name,
         stored_dtype_of(given),
         given.tensor.sizes().vec(),
         rows.back().const_data_ptr()});
  }
  write_safetensors(path, tensors, metadata);
}

} // namespace laga
