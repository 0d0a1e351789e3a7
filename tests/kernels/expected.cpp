#include "tests/kernels/expected.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "tests/kernels/plain.h"

namespace laga::kernels::test {

namespace {

// In fp64 the exact results are no better than what is compared with them, and
// the plain computation is the same one. A sum of n terms is off by about
// sqrt(n) / 2 epsilons, and none here has more than 1100 terms.
constexpr double kFp64Sum = 16;

struct Difference {
  double size = -1; // infinite where only one of two is finite
  size_t index = 0;
};

Difference largest_difference(const Tensor& a, const Tensor& b) {
  Difference largest;
  for (size_t i = 0; i < b.values.size(); ++i) {
    const double x = a.values[i], y = b.values[i];
    double size = std::abs(x - y);
    if (!std::isfinite(x) || !std::isfinite(y)) {
      size = x == y ? 0 : std::numeric_limits<double>::infinity();
    }
    if (size > largest.size) largest = {size, i};
  }
  return largest;
}

double largest_number(const Tensor& x) {
  double largest = 0;
  for (const double number : x.values) {
    if (std::isfinite(number)) largest = std::max(largest, std::abs(number));
  }
  return largest;
}

// [token, batch, head, column]
std::string position(const Tensor& x, size_t index) {
  auto rest = static_cast<int64_t>(index);
  const int64_t column = rest % x.width;
  rest /= x.width;
  const int64_t head = rest % x.heads;
  rest /= x.heads;
  std::ostringstream text;
  text << "[" << rest / x.batch << ", " << rest % x.batch << ", " << head
       << ", " << column << "]";
  return text.str();
}

void expect_same_shape(
    const std::string& name, const Tensor& a, const Tensor& b) {
  ASSERT_EQ(
      std::make_tuple(a.tokens, a.batch, a.heads, a.width),
      std::make_tuple(b.tokens, b.batch, b.heads, b.width))
      << name;
}

} // namespace

template <class T>
Expected expect_of(const Problem& problem) {
  const Results low = low_precision_results<T>(problem);
  const Magnitudes size = magnitudes<T>(problem);
  Expected expected{exact_results<T>(problem), {}};
  const double of_scores = 4 * kEpsilon<Accumulator<T>> * (1 + size.scores);
  for (const auto& [name, exact] : expected.exact) {
    const double plain = largest_difference(low.at(name), exact).size;
    double of_roundings = name == "lse" ? 0 : kEpsilon<T>;
    if (std::is_same_v<T, double>) of_roundings *= kFp64Sum;
    const double magnitude =
        std::max(size.results.at(name), largest_number(exact));
    const double floor = magnitude * (of_roundings + of_scores);
    expected.bound[name] = std::max(2 * plain, floor);
  }
  return expected;
}

template Expected expect_of<Bf16>(const Problem&);
template Expected expect_of<float>(const Problem&);
template Expected expect_of<double>(const Problem&);

void expect_close(const Results& actual, const Expected& expected) {
  for (const auto& [name, exact] : expected.exact) {
    ASSERT_EQ(actual.count(name), 1u) << name;
    const Tensor& x = actual.at(name);
    expect_same_shape(name, x, exact);
    const double bound = expected.bound.at(name);
    ASSERT_TRUE(std::isfinite(bound)) << name;
    const Difference worst = largest_difference(x, exact);
    if (worst.size <= bound) continue;
    ADD_FAILURE() << name << position(exact, worst.index) << " is "
                  << x.values[worst.index] << ", expected "
                  << exact.values[worst.index] << ", off by " << worst.size
                  << ", bound " << bound;
  }
}

void expect_same_bits(const Results& actual, const Results& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (const auto& [name, b] : expected) {
    const Tensor& a = actual.at(name);
    expect_same_shape(name, a, b);
    for (size_t i = 0; i < b.values.size(); ++i) {
      ASSERT_EQ(std::memcmp(&a.values[i], &b.values[i], sizeof(double)), 0)
          << name << position(b, i) << ": " << a.values[i] << " vs "
          << b.values[i];
    }
  }
}

} // namespace laga::kernels::test
