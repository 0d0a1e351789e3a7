// A named form is a row of choices; one attention function serves them all.
#pragma once

#include <array>
#include <string>
#include <string_view>

namespace laga {

/// How keys and values reach the rank that attends with them.
enum class KeyPath {
  kHeads,        // all-to-all of expanded K and V, k_pe copied for every head
  kHeadsCompact, // all-to-all of k_nope and v, k_pe gathered once
  kLatent,       // all-gather of latent and k_pe as one buffer
};

/// Where scores are taken.
enum class ScoreSpace {
  kHead,   // per-head K and V: qk_head_dim and v_head_dim wide
  kLatent, // absorbed: kv_lora_rank + qk_rope_head_dim and kv_lora_rank wide
};

/// In every form of this table queries travel as expanded heads by all-to-all.
struct Form {
  std::string_view name;
  KeyPath key;
  ScoreSpace space;
};

/// The paper's three (its B1, B2 and LAGA) and the fair strong baseline, an
/// Explicit that does not copy k_pe for every head on the wire.
inline constexpr std::array<Form, 4> kForms{{
    {"explicit", KeyPath::kHeads, ScoreSpace::kHead},
    {"explicit-compact", KeyPath::kHeadsCompact, ScoreSpace::kHead},
    {"absorbed", KeyPath::kLatent, ScoreSpace::kLatent},
    {"laga", KeyPath::kLatent, ScoreSpace::kHead},
}};

/// Throws InvalidArgument listing the known names.
const Form& find_form(std::string_view name);

} // namespace laga
