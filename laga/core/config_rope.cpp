#include "laga/core/config_rope.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>

namespace laga::detail {
namespace {

RopeLayout rope_layout(const JsonFields& fields) {
  if (fields.flag("mla_use_nope").value_or(false)) return RopeLayout::kNone;
  // MiniCPM3's code is half-split and its config.json does not say so.
  const bool interleaved =
      fields.flag("rope_interleave")
          .value_or(fields.text("model_type") != "minicpm3");
  return interleaved ? RopeLayout::kInterleaved : RopeLayout::kHalfSplit;
}

/// Both spellings as one object: rope_scaling {type, ...} beside a top-level
/// rope_theta, and transformers 5's rope_parameters {rope_type, rope_theta,
/// ...}. Nulls are dropped; where both speak they must agree.
Json merged_rope(const JsonFields& fields) {
  Json merged = Json::object();
  const auto add = [&](const std::string& name, const Json& value) {
    const auto [found, inserted] = merged.emplace(name, value);
    if (!inserted && *found != value) {
      fields.fail_with(concat(
          name,
          " is given twice and differs (",
          shown(*found),
          " and ",
          shown(value),
          "). Keep one of rope_theta, rope_scaling and ",
          "rope_parameters"));
    }
  };
  for (const char* source : {"rope_scaling", "rope_parameters"}) {
    const Json* object = fields.nested(source);
    if (object == nullptr) continue;
    for (const auto& [name, value] : object->items()) {
      if (value.is_null()) continue;
      const bool is_type = name == "type" || name == "rope_type";
      // vLLM's name for the YaRN below; Sarvam's config.json uses it.
      const bool is_yarn = is_type && value == "deepseek_yarn";
      add(is_type ? "rope_type" : name, is_yarn ? Json("yarn") : value);
    }
  }
  for (const char* name : {"rope_theta", "partial_rotary_factor"}) {
    if (const Json* value = fields.find(name)) add(name, *value);
  }
  return merged;
}

void read_theta(
    const JsonFields& fields,
    const JsonFields& rope,
    bool theta_unchecked,
    MlaConfig& config) {
  // The two agree where both have it; messages should name the one there is.
  const JsonFields& source = fields.find("rope_theta") ? fields : rope;
  // 1 would make every pair turn alike, and YaRN divides by its logarithm.
  const std::optional<double> theta = source.number_above("rope_theta", 1);
  if (theta) {
    config.rope_theta = *theta;
  } else if (
      !theta_unchecked &&
      // Hugging Face's default, which only the DeepSeek configs leave out.
      fields.text("model_type").rfind("deepseek", 0) != 0) {
    fields.fail("rope_theta", "a number above 1");
  }
}

int64_t original_positions(const JsonFields& fields, const JsonFields& rope) {
  constexpr const char* kField = "original_max_position_embeddings";
  if (rope.find(kField) != nullptr) return rope.positive_integer(kField);
  if (fields.find(kField) != nullptr) return fields.positive_integer(kField);
  if (fields.find("max_position_embeddings") != nullptr) {
    return fields.positive_integer("max_position_embeddings");
  }
  rope.fail(kField, "a positive integer, or max_position_embeddings given");
}

Yarn read_yarn(const JsonFields& fields, const JsonFields& rope) {
  Yarn yarn;
  yarn.original_max_position_embeddings = original_positions(fields, rope);
  if (const auto factor = rope.number_above("factor", 0)) {
    yarn.factor = *factor;
  } else if (
      rope.find("original_max_position_embeddings") != nullptr &&
      fields.find("max_position_embeddings") != nullptr) {
    // As Hugging Face does: the two lengths imply it.
    yarn.factor = static_cast<double>(
                      fields.positive_integer("max_position_embeddings")) /
                  static_cast<double>(yarn.original_max_position_embeddings);
  } else {
    rope.fail("factor", "a number above 0");
  }
  yarn.beta_fast = rope.number_above("beta_fast", 0).value_or(yarn.beta_fast);
  yarn.beta_slow = rope.number_above("beta_slow", 0).value_or(yarn.beta_slow);
  if (yarn.beta_fast < yarn.beta_slow) {
    rope.fail(
        "beta_fast", concat("at least beta_slow, which is ", yarn.beta_slow));
  }
  yarn.mscale = rope.number_unless_zero("mscale");
  yarn.mscale_all_dim = rope.number_unless_zero("mscale_all_dim");
  yarn.attention_factor = rope.number_above("attention_factor", 0);
  yarn.truncate = rope.flag("truncate").value_or(yarn.truncate);
  return yarn;
}

/// Fields YaRN has, plus those read or judged elsewhere.
constexpr std::array kRopeFields{
    "rope_type",
    "rope_theta",
    "factor",
    "original_max_position_embeddings",
    "max_position_embeddings",
    "beta_fast",
    "beta_slow",
    "mscale",
    "mscale_all_dim",
    "attention_factor",
    "truncate",
    "partial_rotary_factor",
    "llama_4_scaling_beta"};

void read_scaling(
    const JsonFields& fields, const JsonFields& rope, MlaConfig& config) {
  const std::string type = rope.text("rope_type");
  if (type.empty() && rope.find("factor") != nullptr) {
    rope.fail("rope_type", "\"yarn\" or \"default\" where a factor is given");
  }
  if (type.empty() || type == "default") return;
  if (type != "yarn") {
    refuse(
        config,
        "rope_scaling",
        concat("type '", type, "' is not implemented, yarn is"));
    return;
  }
  config.yarn = read_yarn(fields, rope);
  for (const auto& [name, value] : rope.object().items()) {
    if (std::find(kRopeFields.begin(), kRopeFields.end(), name) ==
        kRopeFields.end()) {
      refuse(config, "rope_scaling." + name, "not a field of YaRN here");
    }
  }
}

/// 1 is all of the qk_rope_head_dim columns. transformers 5 also writes them as
/// a part of the whole head, as in Mistral 4: 64 of 128 is 0.5.
void judge_rotated_part(
    const JsonFields& fields, const JsonFields& rope, MlaConfig& config) {
  const JsonFields& source =
      fields.find("partial_rotary_factor") ? fields : rope;
  const double part = source.number("partial_rotary_factor").value_or(1);
  if (part == 1) return;
  const double head_dim =
      fields.number("head_dim")
          .value_or(static_cast<double>(config.qk_head_dim()));
  if (part * head_dim == static_cast<double>(config.qk_rope_head_dim)) return;
  refuse(
      config,
      "partial_rotary_factor",
      concat(part, " would rotate only some of the qk_rope_head_dim columns"));
}

void judge_query_scale(
    const JsonFields& fields, const JsonFields& rope, MlaConfig& config) {
  const Json* beta = rope.find("llama_4_scaling_beta");
  // Mistral 4's code scales whether or not its config says so.
  if (fields.text("model_type") == "mistral4" ||
      (beta != nullptr && is_on(*beta))) {
    refuse(
        config,
        "llama_4_scaling_beta",
        "queries scaled by their position are not implemented");
  }
}

/// Some models rotate each kind of layer in its own way:
/// rope_parameters {"full_attention": {...}, ...}.
bool differs_by_layer(const Json& rope) {
  return std::any_of(rope.begin(), rope.end(), [](const Json& value) {
    return value.is_object();
  });
}

} // namespace

void read_rope(
    const JsonFields& fields, bool theta_unchecked, MlaConfig& config) {
  config.rope = rope_layout(fields);
  const Json merged = merged_rope(fields);
  const JsonFields rope = fields.within(
      fields.find("rope_parameters") ? "rope_parameters" : "rope_scaling",
      merged);
  judge_query_scale(fields, rope, config);
  // Without rotation there is nothing to scale either; such configs carry a
  // rope_theta all the same.
  if (config.rope == RopeLayout::kNone) return;
  if (differs_by_layer(merged)) {
    refuse(config, "rope_parameters", "those of kinds of layer are not read");
    return;
  }
  read_theta(fields, rope, theta_unchecked, config);
  read_scaling(fields, rope, config);
  judge_rotated_part(fields, rope, config);
}

} // namespace laga::detail
