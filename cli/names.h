// Lists of names as users type and read them.
#pragma once

#include <string>
#include <vector>

namespace laga::cli {

/// "laga,absorbed", or "all": names of forms, or of inner attentions. Throw
/// InvalidArgument listing the known ones.
std::vector<std::string> parse_forms(const std::string& text);
std::vector<std::string> parse_inners(const std::string& text);

/// "a, b, c"
std::string listed(const std::vector<std::string>& names);

} // namespace laga::cli
