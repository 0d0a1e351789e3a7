// The three number formats the project computes in.
#pragma once

#include <cstdint>
#include <string_view>

namespace laga {

enum class Dtype { kBf16, kFp32, kFp64 };

/// Bytes of one number.
constexpr int64_t size_of(Dtype dtype) {
  return dtype == Dtype::kBf16 ? 2 : dtype == Dtype::kFp32 ? 4 : 8;
}

/// "bf16", "fp32" or "fp64".
constexpr std::string_view name_of(Dtype dtype) {
  return dtype == Dtype::kBf16   ? "bf16"
         : dtype == Dtype::kFp32 ? "fp32"
                                 : "fp64";
}

/// The inverse of name_of. Throws InvalidArgument naming the three.
Dtype parse_dtype(std::string_view name);

} // namespace laga
