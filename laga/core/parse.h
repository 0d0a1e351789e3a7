// Numbers as users type them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace laga {

/// "1024", "4k" (k = 1024), "1m" (m = 1024 k). Throws InvalidArgument naming
/// `what` unless it is a whole number from 1 to 2^40.
int64_t parse_count(std::string_view text, std::string_view what);

/// "1,2,4": each as parse_count reads it.
std::vector<int64_t> parse_counts(std::string_view text, std::string_view what);

} // namespace laga
