// Texts of config.json that differ from a right one in a few fields.
#pragma once

#include "laga/core/config.h"

#include <map>
#include <string>
#include <string_view>

#include "tests/core/message_of.h"

namespace laga {

/// Field -> JSON text of its value; "" leaves the field out.
using FieldTexts = std::map<std::string, std::string>;

inline std::string object_text(const FieldTexts& fields) {
  std::string text;
  for (const auto& [name, value] : fields) {
    if (value.empty()) continue;
    text += (text.empty() ? "" : ", ") + ('"' + name + "\": " + value);
  }
  return '{' + text + '}';
}

/// A small model that can be computed with, changed by `changes`.
inline std::string config_text(const FieldTexts& changes = {}) {
  FieldTexts fields{
      {"hidden_size", "200"},
      {"num_attention_heads", "5"},
      {"q_lora_rank", "72"},
      {"kv_lora_rank", "40"},
      {"qk_nope_head_dim", "24"},
      {"qk_rope_head_dim", "8"},
      {"v_head_dim", "28"},
      {"rope_theta", "10000"}};
  for (const auto& [name, value] : changes)
    fields[name] = value;
  return object_text(fields);
}

inline MlaConfig parsed(const FieldTexts& changes) {
  return parse_config(config_text(changes), "test-model");
}

/// The message with which the changed config is refused by parse_config.
inline std::string mistake(const FieldTexts& changes) {
  return message_of([&] { parsed(changes); });
}

/// What the changed config cannot be computed for.
inline std::vector<std::string> unsupported(const FieldTexts& changes) {
  return parsed(changes).unsupported;
}

} // namespace laga
