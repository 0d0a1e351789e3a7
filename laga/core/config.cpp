#include "laga/core/config.h"

#include "laga/core/check.h"
#include "laga/core/config_rope.h"
#include "laga/core/json_fields.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace laga {
namespace {

using detail::Json;
using detail::JsonFields;
using detail::refuse;

// ---- the document -----------------------------------------------------------

/// The text model's fields: multimodal configs nest them.
JsonFields text_model(const Json& root, const std::string& model) {
  const JsonFields top(root, model);
  if (top.find("kv_lora_rank") != nullptr) return top;
  for (const char* field : {"text_config", "language_config"}) {
    const Json* nested = top.nested(field);
    if (nested != nullptr) {
      return top.within(field, *nested);
    }
  }
  return top;
}

// ---- what is ours, not Hugging Face's ---------------------------------------

struct Extras {
  std::vector<std::string> unchecked;
  std::optional<double> latent_norm_eps;
  std::optional<double> softmax_scale;

  bool is_unchecked(std::string_view field) const {
    return std::find(unchecked.begin(), unchecked.end(), field) !=
           unchecked.end();
  }
};

Extras read_extras(const Json& root, const JsonFields& config) {
  const JsonFields top(root, config.model());
  const Json* object = top.nested("laga");
  if (object == nullptr) object = config.nested("laga");
  Extras extras;
  if (object == nullptr) return extras;

  const JsonFields fields = top.within("laga", *object);
  for (const auto& [name, value] : object->items()) {
    // A misspelled name would silently fall back to a default.
    if (name != "unchecked" && name != "notes" && name != "latent_norm_eps" &&
        name != "softmax_scale") {
      fields.fail_with(detail::concat(
          "laga.",
          name,
          " is not known. Known: latent_norm_eps, notes, ",
          "softmax_scale, unchecked"));
    }
  }
  if (const Json* list = fields.find("unchecked")) {
    if (!list->is_array()) fields.fail("unchecked", "a list of field names");
    for (const Json& field : *list) {
      if (!field.is_string()) {
        fields.fail("unchecked", "a list of field names");
      }
      extras.unchecked.push_back(field.get<std::string>());
    }
  }
  extras.latent_norm_eps = fields.number_above("latent_norm_eps", 0);
  extras.softmax_scale = fields.number_above("softmax_scale", 0);
  return extras;
}

// ---- sizes ------------------------------------------------------------------

void read_sizes(const JsonFields& fields, MlaConfig& config) {
  if (fields.find("kv_lora_rank") == nullptr ||
      fields.flag("use_mla") == false) {
    fields.fail_with(
        "not an MLA (Multi-head Latent Attention) model: kv_lora_rank is "
        "missing or null, or use_mla is false. What works is a config.json "
        "of the DeepSeek-V2 family, with kv_lora_rank a positive integer");
  }
  config.kv_lora_rank = fields.positive_integer("kv_lora_rank");
  config.hidden_size = fields.positive_integer("hidden_size");
  config.num_heads = fields.positive_integer("num_attention_heads");
  config.q_lora_rank = fields.integer_or_zero("q_lora_rank");
  config.qk_nope_head_dim = fields.positive_integer("qk_nope_head_dim");
  config.qk_rope_head_dim = fields.positive_integer("qk_rope_head_dim");
  config.v_head_dim = fields.positive_integer("v_head_dim");
  if (config.qk_rope_head_dim % 2 != 0) {
    fields.fail("qk_rope_head_dim", "even: RoPE rotates pairs");
  }
}

/// Every element and byte count of the attention's parameters fits int64, in
/// double precision also exactly. One shape's dimension cannot overflow: it is
/// at most kLargestSize * 2 * kLargestSize < 2^63.
void check_sizes_fit(const JsonFields& fields, const MlaConfig& config) {
  constexpr double kMostNumbers = 1125899906842624; // 2^50
  for (const Parameter& parameter : parameters(config)) {
    double numbers = 1;
    for (int64_t dim : parameter.shape) {
      numbers *= static_cast<double>(dim);
    }
    if (numbers > kMostNumbers) {
      fields.fail_with(detail::concat(
          parameter.name,
          " would have ",
          numbers,
          " numbers, more than ",
          kMostNumbers,
          " (2^50). Check hidden_size, num_attention_heads and ",
          "the ranks and head dims"));
    }
  }
}

// ---- what is not computed ---------------------------------------------------

bool uses_indexer(const JsonFields& fields) {
  for (const char* field : {"index_topk", "index_n_heads", "index_head_dim"}) {
    if (fields.find(field) != nullptr) return true;
  }
  // These two have the indexer whether or not the fields are written out.
  const std::string type = fields.text("model_type");
  return type == "glm_moe_dsa" || type == "deepseek_v32";
}

void judge_features(const JsonFields& fields, MlaConfig& config) {
  const auto on = [&](const char* field) {
    const Json* value = fields.find(field);
    return value != nullptr && detail::is_on(*value);
  };
  if (uses_indexer(fields)) {
    refuse(config, "index_topk", "a sparse indexer is not implemented");
  }
  // Kimi-K3's spelling, then those of other families.
  for (const char* field :
       {"mla_use_output_gate",
        "attn_output_gate",
        "attention_output_gate",
        "use_output_gate",
        "output_gate"}) {
    if (on(field)) refuse(config, field, "an output gate is not implemented");
  }
  // LongCat's code scales whether or not its config says so.
  const bool longcat = fields.text("model_type") == "longcat_flash";
  for (const char* field : {"mla_scale_q_lora", "mla_scale_kv_lora"}) {
    if (fields.flag(field).value_or(longcat)) {
      refuse(config, field, "a scaled latent is not implemented");
    }
  }
  if (on("sliding_window") && fields.flag("use_sliding_window") != false) {
    refuse(config, "sliding_window", "a sliding window is not implemented");
  }
  if (fields.number_unless_zero("attention_dropout")) {
    refuse(config, "attention_dropout", "dropout is not implemented");
  }
}

/// After everything else: a field already refused says more than "not checked".
void judge_unchecked(const Extras& extras, MlaConfig& config) {
  for (const std::string& field : extras.unchecked) {
    const bool named = std::any_of(
        config.unsupported.begin(),
        config.unsupported.end(),
        [&](const std::string& entry) {
          return entry.rfind(field + ":", 0) == 0;
        });
    if (!named) refuse(config, field, "not checked");
  }
}

} // namespace

MlaConfig parse_config(std::string_view json, std::string name) {
  const Json root = detail::parse_object(json, name, "parse_config");
  const JsonFields fields = text_model(root, name);
  const Extras extras = read_extras(root, fields);
  MlaConfig config;
  config.name = std::move(name);
  read_sizes(fields, config);
  check_sizes_fit(fields, config);
  config.attention_bias = fields.flag("attention_bias").value_or(false);
  config.latent_norm_eps =
      extras.latent_norm_eps.value_or(config.latent_norm_eps);
  config.softmax_scale = extras.softmax_scale;
  detail::read_rope(fields, extras.is_unchecked("rope_theta"), config);
  judge_features(fields, config);
  judge_unchecked(extras, config);
  return config;
}

void require_computable(const MlaConfig& config) {
  if (config.unsupported.empty()) return;
  std::string reasons;
  for (const std::string& reason : config.unsupported) {
    reasons += (reasons.empty() ? "" : "; ") + reason;
  }
  throw InvalidArgument(detail::concat(
      "[require_computable] ",
      config.name,
      " can be planned with but not computed with: ",
      reasons));
}

} // namespace laga
