// Errors say whose fault they are by their type and print both values:
//   [function] a == b (128 vs 96). context
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

namespace laga {

/// The caller's mistake: a value, shape, type or file that cannot be used as
/// given. Thrown before anything is sent or written.
class InvalidArgument : public std::invalid_argument {
 public:
  using std::invalid_argument::invalid_argument;
};

/// The world's: a peer died, left, disagreed or missed the deadline.
class CommError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

namespace detail {

template <typename... Parts>
std::string concat(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

[[noreturn]] inline void throw_invalid(
    const char* function,
    const std::string& condition,
    const std::string& context) {
  throw InvalidArgument(concat("[", function, "] ", condition, ". ", context));
}

} // namespace detail
} // namespace laga

/// Caller's mistake unless `condition`; the rest is the context to print.
#define LAGA_CHECK(condition, ...)                                    \
  do {                                                                \
    if (!(condition)) {                                               \
      ::laga::detail::throw_invalid(                                  \
          __func__, #condition, ::laga::detail::concat(__VA_ARGS__)); \
    }                                                                 \
  } while (false)

#define LAGA_CHECK_OP_(op, a, b, ...)                                 \
  do {                                                                \
    const auto laga_a_ = (a);                                         \
    const auto laga_b_ = (b);                                         \
    if (!(laga_a_ op laga_b_)) {                                      \
      ::laga::detail::throw_invalid(                                  \
          __func__,                                                   \
          ::laga::detail::concat(                                     \
              #a " " #op " " #b " (", laga_a_, " vs ", laga_b_, ")"), \
          ::laga::detail::concat(__VA_ARGS__));                       \
    }                                                                 \
  } while (false)

/// Both sides are evaluated once and printed.
#define LAGA_CHECK_EQ(a, b, ...) LAGA_CHECK_OP_(==, a, b, __VA_ARGS__)
#define LAGA_CHECK_GE(a, b, ...) LAGA_CHECK_OP_(>=, a, b, __VA_ARGS__)
#define LAGA_CHECK_GT(a, b, ...) LAGA_CHECK_OP_(>, a, b, __VA_ARGS__)
#define LAGA_CHECK_LT(a, b, ...) LAGA_CHECK_OP_(<, a, b, __VA_ARGS__)
