#include "laga/core/run_shape.h"

#include "laga/core/check.h"

#include <numeric>

namespace laga {

std::vector<int64_t> ranks_that_work(
    const MlaConfig& config,
    const Form& /*all forms shard heads over all ranks*/,
    int64_t seq) {
  std::vector<int64_t> ranks;
  const int64_t common = std::gcd(config.num_heads, seq);
  for (int64_t p = 1; p <= common; ++p) {
    if (common % p == 0) ranks.push_back(p);
  }
  return ranks;
}

namespace {

std::string listed(const std::vector<int64_t>& numbers) {
  std::string text;
  for (int64_t number : numbers) {
    text += (text.empty() ? "" : ", ") + std::to_string(number);
  }
  return text;
}

} // namespace

void check_shape(
    const MlaConfig& config, const Form& form, const RunShape& shape) {
  LAGA_CHECK_GE(shape.seq, 1, "the sequence needs at least one token");
  LAGA_CHECK_GE(shape.batch, 1, "the batch needs at least one sequence");
  LAGA_CHECK_GE(shape.ranks, 1, "a group has at least one rank");
  const auto refuse = [&](const char* what, int64_t value) {
    throw InvalidArgument(detail::concat(
        "[check_shape] ",
        form.name,
        " needs ",
        what,
        " % ranks == 0 (",
        value,
        " % ",
        shape.ranks,
        " = ",
        value % shape.ranks,
        "). Ranks that work for ",
        config.num_heads,
        " heads and ",
        shape.seq,
        " tokens: ",
        listed(ranks_that_work(config, form, shape.seq))));
  };
  if (config.num_heads % shape.ranks != 0)
    refuse("num_heads", config.num_heads);
  if (shape.seq % shape.ranks != 0) refuse("seq", shape.seq);
}

} // namespace laga
