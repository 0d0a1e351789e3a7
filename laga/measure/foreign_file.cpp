#include "laga/attention/dtype.h"
#include "laga/attention/weights_file.h"
#include "laga/core/check.h"
#include "laga/measure/foreign.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

namespace laga {

namespace {

using Json = nlohmann::json;

[[noreturn]] void refuse(
    const SafetensorsReader& file, const std::string& what) {
  throw InvalidArgument(
      detail::concat("[read_foreign_case] ", file.path(), ": ", what));
}

// Every metadata value is JSON text.
Json metadata(const SafetensorsReader& file, const std::string& key) {
  const auto found = file.metadata().find(key);
  if (found == file.metadata().end()) {
    refuse(file, "metadata \"" + key + "\" is missing");
  }
  Json value = Json::parse(found->second, nullptr, false);
  if (value.is_discarded()) {
    refuse(file, "metadata \"" + key + "\" is not JSON text");
  }
  return value;
}

double number(const SafetensorsReader& file, const std::string& key) {
  const Json value = metadata(file, key);
  if (!value.is_number()) {
    refuse(file, "metadata \"" + key + "\" must be a number");
  }
  return value.get<double>();
}

MlaConfig config_of(const SafetensorsReader& file) {
  MlaConfig config = parse_config(metadata(file, "config").dump(), file.path());
  config.name = std::filesystem::path(file.path()).stem().string();
  require_computable(config);
  return config;
}

// [B, S, ...] to [S, b, ...]
at::Tensor sequence_first(const at::Tensor& tensor) {
  return tensor.transpose(0, 1).contiguous();
}

// Reads by name, and remembers which names were asked for.
class Tensors {
 public:
  explicit Tensors(const SafetensorsReader& file) : file_(file) {}

  at::Tensor get(const std::string& name, at::IntArrayRef shape) {
    asked_for_.insert(name);
    at::Tensor tensor = read_tensor(file_, name, shape);
    if (!dtype_.has_value()) dtype_ = tensor.scalar_type();
    if (tensor.scalar_type() != *dtype_) {
      refuse(
          file_,
          detail::concat(
              name,
              " is ",
              tensor.scalar_type(),
              ", the ones before are ",
              *dtype_));
    }
    return tensor;
  }

  at::Tensor get_positions(at::IntArrayRef shape) {
    asked_for_.insert("position_ids");
    at::Tensor tensor = read_tensor(file_, "position_ids", shape);
    if (tensor.scalar_type() != at::kLong) {
      refuse(file_, "position_ids must be I64");
    }
    return tensor;
  }

  // A tensor that nobody looks at is a mistake: a bias that was left out.
  void check_all_were_asked_for() const {
    for (const auto& [name, tensor] : file_.tensors()) {
      if (asked_for_.count(name) == 0) {
        refuse(file_, name + ": not a tensor of this config");
      }
    }
  }

 private:
  const SafetensorsReader& file_;
  std::set<std::string> asked_for_;
  std::optional<at::ScalarType> dtype_;
};

void read_sizes(const SafetensorsReader& file, ForeignCase& a_case) {
  const StoredTensor& hidden = file.at("hidden_states");
  const int64_t d = a_case.config.hidden_size;
  if (hidden.shape.size() != 3 || hidden.shape[2] != d || hidden.shape[0] < 1 ||
      hidden.shape[1] < 1) {
    refuse(
        file,
        detail::concat(
            "hidden_states must be [batch, sequence, ",
            d,
            "] (got ",
            to_string(hidden),
            ")"));
  }
  a_case.batch = hidden.shape[0];
  a_case.seq = hidden.shape[1];
}

void read_tensors(const SafetensorsReader& file, ForeignCase& a_case) {
  const int64_t b = a_case.batch, S = a_case.seq;
  const std::vector<int64_t> hidden{b, S, a_case.config.hidden_size};
  const std::vector<int64_t> table{b, S, a_case.config.qk_rope_head_dim};
  Tensors tensors(file);
  const auto get = [&](const std::string& name, at::IntArrayRef shape) {
    return sequence_first(tensors.get(name, shape));
  };
  a_case.inputs.hidden = get("hidden_states", hidden);
  a_case.dtype = dtype_of(a_case.inputs.hidden);
  a_case.inputs.grad_output = get("grad_output", hidden);
  a_case.positions = tensors.get_positions({b, S}).t().contiguous();
  for (const char* name : {"output", "grad.hidden_states"}) {
    a_case.results[name] = get(name, hidden);
  }
  std::vector<NamedTensor> weights;
  for (const auto& [name, shape] : parameters(a_case.config)) {
    weights.push_back({name, tensors.get(name, shape)});
    a_case.results["grad." + name] = tensors.get("grad." + name, shape);
  }
  a_case.inputs.weights = weights_from(a_case.config, weights);
  if (a_case.config.rope != RopeLayout::kNone) {
    a_case.cos = get("cos", table);
    a_case.sin = get("sin", table);
  }
  tensors.check_all_were_asked_for();
}

} // namespace

ForeignCase read_foreign_case(const std::string& path) {
  const SafetensorsReader file(path);
  ForeignCase a_case;
  a_case.config = config_of(file);
  a_case.name = a_case.config.name;
  const Json implementation = metadata(file, "impl");
  a_case.implementation = implementation.is_string()
                              ? implementation.get<std::string>()
                              : implementation.dump();
  a_case.softmax_scale = number(file, "scaling");
  if (file.metadata().count("eps") > 0) {
    a_case.latent_norm_eps = number(file, "eps");
  }
  read_sizes(file, a_case);
  read_tensors(file, a_case);
  return a_case;
}

} // namespace laga
