#include "laga/core/parse.h"

#include "laga/core/check.h"

#include <charconv>

namespace laga {

namespace {

int64_t unit_of(std::string_view suffix) {
  if (suffix.empty()) return 1;
  if (suffix == "k" || suffix == "K") return int64_t{1} << 10;
  if (suffix == "m" || suffix == "M") return int64_t{1} << 20;
  return 0;
}

} // namespace

int64_t parse_count(std::string_view text, std::string_view what) {
  constexpr int64_t kLargest = int64_t{1} << 40;
  int64_t number = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  const int64_t unit = unit_of({rest, static_cast<size_t>(end - rest)});
  if (error != std::errc() || unit == 0 || number < 1 ||
      number > kLargest / unit) {
    throw InvalidArgument(detail::concat(
        "[parse_count] ",
        what,
        " must be a whole number from 1 to 2^40, such "
        "as 1024, 4k or 1m (got '",
        text,
        "')"));
  }
  return number * unit;
}

std::vector<int64_t> parse_counts(
    std::string_view text, std::string_view what) {
  std::vector<int64_t> counts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t comma = std::min(text.find(',', begin), text.size());
    counts.push_back(parse_count(text.substr(begin, comma - begin), what));
    begin = comma + 1;
  }
  return counts;
}

} // namespace laga
