// Numbers of the three formats, and sums of them written as plainly as can be.
#pragma once

#include "laga/core/dtype.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <span>
#include <type_traits>
#include <vector>

namespace laga::test {

struct Bf16 {
  uint16_t bits;
};

template <typename Number>
constexpr Dtype dtype_of() {
  return std::is_same_v<Number, Bf16>    ? Dtype::kBf16
         : std::is_same_v<Number, float> ? Dtype::kFp32
                                         : Dtype::kFp64;
}

inline float to_float(Bf16 x) {
  const uint32_t bits = static_cast<uint32_t>(x.bits) << 16;
  float result;
  std::memcpy(&result, &bits, sizeof result);
  return result;
}

/// The nearer of the two neighbours, the even one of equally near ones. Found
/// by measuring the distances, not by the arithmetic on bits that is tested.
/// For finite x below the largest number.
inline Bf16 nearest_bf16(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  const Bf16 inner{static_cast<uint16_t>(bits >> 16)};
  if (!std::isfinite(x)) return inner;
  const Bf16 outer{static_cast<uint16_t>(inner.bits + 1)};
  const double to_inner = std::fabs(double{x} - double{to_float(inner)});
  const double to_outer = std::fabs(double{to_float(outer)} - double{x});
  if (to_inner != to_outer) return to_inner < to_outer ? inner : outer;
  return inner.bits % 2 == 0 ? inner : outer;
}

inline float accumulator(Bf16 x) {
  return to_float(x);
}
inline float accumulator(float x) {
  return x;
}
inline double accumulator(double x) {
  return x;
}

template <typename Number>
Number rounded(decltype(accumulator(Number{})) x) {
  if constexpr (std::is_same_v<Number, Bf16>) {
    return nearest_bf16(x);
  } else {
    return x;
  }
}

/// values[p][i] summed over p: inside each node in rank order, rounded, then
/// over the nodes in the order of their first rank, rounded.
template <typename Number>
std::vector<Number> plain_sum(
    const std::vector<std::vector<Number>>& values,
    const std::vector<int>& nodes) {
  std::vector<int> order;
  for (const int node : nodes) {
    if (std::count(order.begin(), order.end(), node) == 0) {
      order.push_back(node);
    }
  }
  std::vector<Number> sums;
  for (size_t i = 0; i < values[0].size(); ++i) {
    std::vector<Number> of_nodes;
    for (const int node : order) {
      std::vector<Number> members;
      for (size_t p = 0; p < nodes.size(); ++p) {
        if (nodes[p] == node) members.push_back(values[p][i]);
      }
      auto sum = accumulator(members[0]);
      for (size_t k = 1; k < members.size(); ++k) {
        sum += accumulator(members[k]);
      }
      of_nodes.push_back(rounded<Number>(sum));
    }
    auto sum = accumulator(of_nodes[0]);
    for (size_t k = 1; k < of_nodes.size(); ++k) {
      sum += accumulator(of_nodes[k]);
    }
    sums.push_back(rounded<Number>(sum));
  }
  return sums;
}

/// Of very different sizes and both signs, so that the order of additions and
/// every rounding shows in the bits.
template <typename Number>
std::vector<Number> random_numbers(int64_t count, int seed) {
  std::mt19937 random(static_cast<unsigned>(seed) + 1);
  std::vector<Number> numbers;
  for (int64_t i = 0; i < count; ++i) {
    const double mantissa =
        std::ldexp(static_cast<double>(random()) - 0x1p31, -31);
    const int exponent = static_cast<int>(random() % 12);
    const double x = std::ldexp(mantissa, exponent);
    numbers.push_back(
        rounded<Number>(static_cast<decltype(accumulator(Number{}))>(x)));
  }
  return numbers;
}

template <typename Number>
const std::byte* bytes_of(const Number* numbers) {
  return reinterpret_cast<const std::byte*>(numbers);
}

template <typename Number>
std::byte* writable_bytes_of(Number* numbers) {
  return reinterpret_cast<std::byte*>(numbers);
}

template <typename Number>
void expect_same_bits(
    std::span<const Number> actual, std::span<const Number> expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    ASSERT_EQ(std::memcmp(&actual[i], &expected[i], sizeof(Number)), 0)
        << "number " << i << ": " << accumulator(actual[i]) << " vs "
        << accumulator(expected[i]);
  }
}

template <typename Number>
void expect_same_bits(
    const std::vector<Number>& actual, const std::vector<Number>& expected) {
  expect_same_bits(std::span(actual), std::span(expected));
}

} // namespace laga::test
