// The bits of a sum, against a loop that adds one number after the other.
#include "laga/comm/reduce.h"
#include "laga/core/check.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/comm/numbers.h"

namespace laga::test {
namespace {

// The sum of one number a rank.
template <typename Number>
Number sum_of(
    const std::vector<Number>& values, const std::vector<int>& nodes) {
  std::vector<const std::byte*> parts;
  for (const Number& value : values)
    parts.push_back(bytes_of(&value));
  Number out;
  sum_in_layout_order(
      dtype_of<Number>(), parts, nodes, reinterpret_cast<std::byte*>(&out), 1);
  return out;
}

float bf16_sum(
    const std::vector<float>& values, const std::vector<int>& nodes) {
  std::vector<Bf16> numbers;
  for (const float value : values)
    numbers.push_back(nearest_bf16(value));
  return to_float(sum_of(numbers, nodes));
}

// bf16 has 8 bits: from 256 on only even numbers.
TEST(SumInLayoutOrder, Bf16IsRoundedOnceANode) {
  EXPECT_EQ(bf16_sum({256, 1, 1}, {0, 0, 0}), 258); // not 256 + 1 = 256
  EXPECT_EQ(bf16_sum({256, 1, 1}, {0, 0, 1}), 256); // node 0 rounds 257
  EXPECT_EQ(bf16_sum({256, 1, 1}, {0, 1, 1}), 258); // 256 + 2
  EXPECT_EQ(bf16_sum({256, 1, 1}, {0, 1, 0}), 256); // interleaved
  EXPECT_EQ(bf16_sum({256, 1, 1}, {0, 1, 2}), 258); // each alone
  EXPECT_EQ(bf16_sum({256, 1, 1, 1}, {0, 0, 1, 1}), 258);
}

TEST(SumInLayoutOrder, Bf16TiesGoToEven) {
  EXPECT_EQ(bf16_sum({256, 1}, {0, 0}), 256);
  EXPECT_EQ(bf16_sum({258, 1}, {0, 0}), 260);
  EXPECT_EQ(bf16_sum({258, 1, 0.0078125f}, {0, 0, 0}), 260);
  EXPECT_EQ(bf16_sum({256, 1, 0.0078125f}, {0, 0, 0}), 258); // above the tie
  EXPECT_EQ(bf16_sum({-258, -1}, {0, 0}), -260);
}

TEST(SumInLayoutOrder, NodesAreAddedInTheOrderOfTheirFirstRank) {
  EXPECT_EQ((sum_of<float>({1e8f, 1, -1e8f}, {0, 0, 0})), 0);
  EXPECT_EQ((sum_of<float>({1e8f, 1, -1e8f}, {1, 0, 1})), 1);
  EXPECT_EQ((sum_of<float>({1e8f, -1e8f, 1}, {2, 0, 1})), 1);
  EXPECT_EQ((sum_of<float>({-1e8f, 1, 1e8f}, {2, 0, 1})), 0);
}

TEST(SumInLayoutOrder, Fp64KeepsItsBits) {
  EXPECT_EQ((sum_of<double>({1e8, 1e-7, -1e8}, {0, 1, 2})), 1e8 + 1e-7 - 1e8);
  EXPECT_EQ((sum_of<double>({0x1p53, 1, -0x1p53}, {0, 1, 0})), 1);
  EXPECT_EQ((sum_of<double>({0x1p53, 1, -0x1p53}, {0, 0, 0})), 0);
}

TEST(SumInLayoutOrder, NanAndInfinityStay) {
  const float inf = std::numeric_limits<float>::infinity();
  const float largest = 0x1.fep127f; // of bf16
  EXPECT_EQ(bf16_sum({inf, 1}, {0, 0}), inf);
  EXPECT_EQ(bf16_sum({-inf, 1}, {0, 1}), -inf);
  EXPECT_EQ(bf16_sum({largest, largest}, {0, 0}), inf);
  EXPECT_TRUE(std::isnan(bf16_sum({inf, -inf}, {0, 0})));
  // Every NaN of bf16: rounding must not carry one into infinity or beyond.
  for (uint32_t sign : {0u, 0x8000u}) {
    for (uint32_t mantissa = 1; mantissa < 128; ++mantissa) {
      const Bf16 nan{static_cast<uint16_t>(sign | 0x7f80u | mantissa)};
      EXPECT_TRUE(std::isnan(to_float(sum_of<Bf16>({nan}, {0}))));
      EXPECT_TRUE(
          std::isnan(to_float(sum_of<Bf16>({Bf16{0x3f80}, nan}, {0, 1}))));
    }
  }
}

TEST(SumInLayoutOrder, OneRankKeepsEveryNumberOfBf16) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const Bf16 x{static_cast<uint16_t>(bits)};
    if (std::isnan(to_float(x))) continue;
    ASSERT_EQ(sum_of<Bf16>({x}, {0}).bits, x.bits);
  }
}

template <typename Number>
class SumOf : public testing::Test {};
using Numbers = testing::Types<Bf16, float, double>;
TYPED_TEST_SUITE(SumOf, Numbers);

const std::vector<std::vector<int>> kLayouts{
    {0}, {0, 0}, {0, 0, 0}, {0, 0, 1}, {0, 1, 0, 2, 1}, {1, 1, 1, 0, 0, 0, 0}};

// Around the size of a block, and unaligned.
TYPED_TEST(SumOf, AnyCountHasTheBitsOfAPlainLoop) {
  for (const auto& nodes : kLayouts) {
    for (const int64_t count : {0, 1, 1023, 1024, 1025, 2731}) {
      std::vector<std::vector<TypeParam>> values;
      std::vector<std::vector<std::byte>> unaligned;
      std::vector<const std::byte*> parts;
      for (size_t p = 0; p < nodes.size(); ++p) {
        values.push_back(random_numbers<TypeParam>(count, static_cast<int>(p)));
        unaligned.emplace_back(1 + values[p].size() * sizeof(TypeParam));
        if (count > 0) {
          std::memcpy(
              unaligned[p].data() + 1,
              values[p].data(),
              unaligned[p].size() - 1);
        }
      }
      for (const auto& buffer : unaligned)
        parts.push_back(buffer.data() + 1);
      std::vector<TypeParam> out(static_cast<size_t>(count));
      sum_in_layout_order(
          dtype_of<TypeParam>(),
          parts,
          nodes,
          writable_bytes_of(out.data()),
          count);
      expect_same_bits(out, plain_sum(values, nodes));
    }
  }
}

TYPED_TEST(SumOf, OutMayBeAnyOfTheParts) {
  const std::vector<int> nodes{0, 1, 0};
  for (size_t target = 0; target < nodes.size(); ++target) {
    std::vector<std::vector<TypeParam>> values;
    std::vector<const std::byte*> parts;
    for (int p = 0; p < 3; ++p) {
      values.push_back(random_numbers<TypeParam>(1500, p));
    }
    const auto expected = plain_sum(values, nodes);
    for (const auto& part : values)
      parts.push_back(bytes_of(part.data()));
    sum_in_layout_order(
        dtype_of<TypeParam>(),
        parts,
        nodes,
        writable_bytes_of(values[target].data()),
        1500);
    expect_same_bits(values[target], expected);
  }
}

TEST(SumInLayoutOrder, RefusesImpossibleArguments) {
  std::byte out[8];
  const std::vector<const std::byte*> parts{out, out};
  const std::vector<int> nodes{0};
  EXPECT_THROW(
      sum_in_layout_order(Dtype::kFp32, {}, {}, out, 1), InvalidArgument);
  EXPECT_THROW(
      sum_in_layout_order(Dtype::kFp32, parts, nodes, out, 1), InvalidArgument);
  EXPECT_THROW(
      sum_in_layout_order(
          Dtype::kFp32, std::span(parts).first(1), nodes, out, -1),
      InvalidArgument);
}

} // namespace
} // namespace laga::test
