// Typed reading of a JSON object's fields. Every message names the model, the
// field, what would work and what was there. Internal to laga/core: no public
// header shows JSON.
#pragma once

#include "laga/core/check.h"

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace laga::detail {

using Json = nlohmann::json;

/// Sizes above this are typing mistakes, and products of two still fit int64.
inline constexpr int64_t kLargestSize = 2147483647;

/// A value as a message shows it. Containers by their kind only: they may be
/// long, or nested deeper than a recursive printer can go.
inline std::string shown(const Json& value) {
  if (value.is_object()) return "an object";
  if (value.is_array()) return "an array";
  constexpr size_t kLongest = 60;
  std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  return text.size() <= kLongest ? text : text.substr(0, kLongest) + "...";
}

/// null, false, 0, "" and an empty container say "not used".
inline bool is_on(const Json& value) {
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_number()) return value.get<double>() != 0;
  if (value.is_string()) return !value.get_ref<const std::string&>().empty();
  return !value.empty();
}

/// A view of one object; it must outlive the view.
class JsonFields {
 public:
  /// `model` is what messages call the document, `prefix` what they put before
  /// a field's name, e.g. "rope_scaling.".
  JsonFields(
      const Json& object,
      std::string model,
      std::string prefix = "",
      std::string function = "parse_config")
      : object_(&object),
        model_(std::move(model)),
        prefix_(std::move(prefix)),
        function_(std::move(function)) {}

  const Json& object() const {
    return *object_;
  }

  const std::string& model() const {
    return model_;
  }

  /// `object`, found under `field` of this one.
  JsonFields within(std::string_view field, const Json& object) const {
    return JsonFields(object, model_, concat(prefix_, field, "."), function_);
  }

  /// The field, or nullptr if it is absent or null.
  const Json* find(std::string_view field) const {
    const auto found = object_->find(field);
    return found == object_->end() || found->is_null() ? nullptr : &*found;
  }

  /// Throws "[parse_config] MODEL: FIELD must be MUST (got VALUE)".
  [[noreturn]] void fail(std::string_view field, std::string_view must) const {
    const auto found = object_->find(field);
    const std::string got =
        found == object_->end() ? "missing" : "got " + shown(*found);
    fail_with(concat(prefix_, field, " must be ", must, " (", got, ")"));
  }

  [[noreturn]] void fail_with(std::string_view message) const {
    throw InvalidArgument(concat("[", function_, "] ", model_, ": ", message));
  }

  /// A required whole number in 1..kLargestSize.
  int64_t positive_integer(std::string_view field) const {
    return whole_number(field, 1, "a positive integer");
  }

  /// A whole number in 0..kLargestSize, 0 where absent or null.
  int64_t integer_or_zero(std::string_view field) const {
    if (find(field) == nullptr) return 0;
    return whole_number(field, 0, "a positive integer, 0 or null");
  }

  std::optional<double> number(std::string_view field) const {
    const Json* value = find(field);
    if (value == nullptr) return std::nullopt;
    if (!value->is_number()) fail(field, "a number");
    return value->get<double>();
  }

  /// `above` itself is refused.
  std::optional<double> number_above(
      std::string_view field, double above) const {
    const std::optional<double> value = number(field);
    if (value && !(*value > above)) fail(field, concat("above ", above));
    return value;
  }

  /// Zero and null both mean "not set".
  std::optional<double> number_unless_zero(std::string_view field) const {
    const std::optional<double> value = number(field);
    if (value && *value < 0) fail(field, "a number from 0 up");
    return value && *value != 0 ? value : std::nullopt;
  }

  std::optional<bool> flag(std::string_view field) const {
    const Json* value = find(field);
    if (value == nullptr) return std::nullopt;
    if (!value->is_boolean()) fail(field, "true or false");
    return value->get<bool>();
  }

  /// Empty where absent or null.
  std::string text(std::string_view field) const {
    const Json* value = find(field);
    if (value == nullptr) return {};
    if (!value->is_string()) fail(field, "a string");
    return value->get<std::string>();
  }

  /// nullptr where absent or null.
  const Json* nested(std::string_view field) const {
    const Json* value = find(field);
    if (value != nullptr && !value->is_object()) fail(field, "an object");
    return value;
  }

 private:
  int64_t whole_number(
      std::string_view field, int64_t least, std::string_view must) const {
    const Json* value = find(field);
    if (value == nullptr || !value->is_number()) fail(field, must);
    // As a double so that one comparison covers 1e30, -5 and 2^64 - 1; every
    // whole number up to kLargestSize is exact in it.
    const double number = value->get<double>();
    if (number > static_cast<double>(kLargestSize)) {
      fail(field, concat("at most ", kLargestSize));
    }
    const auto whole = static_cast<int64_t>(number < 0 ? -1 : number);
    if (static_cast<double>(whole) != number || whole < least) {
      fail(field, must);
    }
    return whole;
  }

  const Json* object_;
  std::string model_;
  std::string prefix_;
  std::string function_;
};

/// The text's one object. Throws InvalidArgument naming `function`, `model` and
/// where the text goes wrong.
inline Json parse_object(
    std::string_view text,
    const std::string& model,
    const std::string& function) {
  const auto fail = [&](const std::string& what) {
    throw InvalidArgument(concat("[", function, "] ", model, ": ", what));
  };
  Json root;
  try {
    root = Json::parse(text);
  } catch (const Json::exception& error) {
    // what() is "[json.exception.NAME.ID] parse error at line 1, column 2:
    // ..."; it quotes the last token read, which may be as long as the file.
    std::string what = error.what();
    what.erase(0, what.find("] ") + 2);
    constexpr size_t kLongest = 200;
    if (what.size() > kLongest) what = what.substr(0, kLongest) + "...";
    fail("not valid JSON: " + what);
  }
  if (!root.is_object()) {
    fail(concat("must be an object (got ", shown(root), ")"));
  }
  return root;
}

} // namespace laga::detail
