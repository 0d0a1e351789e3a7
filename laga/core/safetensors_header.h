// The JSON of a safetensors file, apart from reading and writing it. Internal
// to laga/core.
#pragma once

#include "laga/core/safetensors.h"

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace laga::detail {

/// Longer headers are refused by the format's own library as well.
inline constexpr uint64_t kLongestHeader = 100'000'000;

/// What precedes the header: its length.
inline constexpr uint64_t kLengthBytes = 8;

struct SafetensorsHeader {
  std::map<std::string, StoredTensor> tensors; // begin: counted from the data's
  SafetensorsMetadata metadata;
};

/// Parses and checks the header of a file that has `data_bytes` after it.
/// Messages begin with `path`.
SafetensorsHeader parse_safetensors_header(
    std::string_view json, uint64_t data_bytes, const std::string& path);

} // namespace laga::detail
