// The attention's sizes and conventions, named as in Hugging Face's
// config.json.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace laga {

enum class RopeLayout {
  kInterleaved, // pairs (2i, 2i + 1): DeepSeek, Kimi-K2, GLM
  kHalfSplit,   // pairs (i, i + r / 2): MiniCPM3
  kNone,        // the r columns exist but are not rotated: Kimi-Linear, Kimi-K3
};

/// YaRN, arXiv 2309.00071, with the fields Hugging Face's rope_scaling has.
struct Yarn {
  double factor = 1;
  int64_t original_max_position_embeddings = 4096;
  double beta_fast = 32;
  double beta_slow = 1;
  std::optional<double> mscale = {};
  std::optional<double> mscale_all_dim = {};
  std::optional<double> attention_factor = {};
  bool truncate = true; // round the correction range to whole dimensions

  bool operator==(const Yarn&) const = default;
};

struct MlaConfig {
  std::string name = {};
  int64_t hidden_size = 0;  // d
  int64_t num_heads = 0;    // n
  int64_t q_lora_rank = 0;  // 0: queries are projected from hidden directly
  int64_t kv_lora_rank = 0; // c
  int64_t qk_nope_head_dim = 0;
  int64_t qk_rope_head_dim = 0; // r
  int64_t v_head_dim = 0;
  RopeLayout rope = RopeLayout::kInterleaved;
  double rope_theta = 10000;
  std::optional<Yarn> yarn = {};
  /// The latent norms have an eps of their own: 1e-6 in Hugging Face, whatever
  /// rms_norm_eps says (DeepseekV3RMSNorm's default).
  double latent_norm_eps = 1e-6;
  bool attention_bias = false;              // on q_a, kv_a and o only
  std::optional<double> softmax_scale = {}; // overrides the derived one
  /// Why this model cannot be computed with (sizes are right all the same):
  /// one "field: reason" each. Empty for most.
  std::vector<std::string> unsupported = {};

  int64_t qk_head_dim() const {
    return qk_nope_head_dim + qk_rope_head_dim;
  }

  bool operator==(const MlaConfig&) const = default;
};

/// A model by its preset name (NAME.json of configs/models, or of the folder
/// that the environment's LAGA_PRESETS names) or, if it has a '/' or ends in
/// .json, by the path of a Hugging Face config.json or of its folder. Throws
/// InvalidArgument naming the field or, for an unknown name, listing the
/// presets.
MlaConfig load_config(std::string_view name_or_path);

/// Parses the text of a Hugging Face config.json; `name` is used in messages
/// and becomes the config's. Values that cannot be right throw InvalidArgument;
/// what is right but not implemented goes into `unsupported`.
MlaConfig parse_config(std::string_view json, std::string name);

/// Names of the presets, sorted.
std::vector<std::string> preset_names();

/// Throws InvalidArgument that names everything in config.unsupported.
void require_computable(const MlaConfig& config);

/// A trainable parameter of the attention: Hugging Face name and shape.
struct Parameter {
  std::string name;
  std::vector<int64_t> shape;

  int64_t numel() const;
};

/// In Hugging Face's order: q_proj | q_a_proj, q_a_layernorm, q_b_proj;
/// kv_a_proj_with_mqa [c + r, d] (latent rows first); kv_a_layernorm;
/// kv_b_proj [n (nope + v), c] (per head: nope rows, then v rows); o_proj.
std::vector<Parameter> parameters(const MlaConfig& config);

} // namespace laga
