#include <gtest/gtest.h>

#include <cmath>

#include "tests/core/message_of.h"
#include "tests/kernels/rows.h"

namespace laga::kernels::test {
namespace {

template <class T>
class RowDots : public testing::Test {};
using Numbers = testing::Types<Bf16, float, double>;
TYPED_TEST_SUITE(RowDots, Numbers);

TYPED_TEST(RowDots, AreThoseOfALoopAtAnyWidthAndLayout) {
  using T = TypeParam;
  using Real = Accumulator<T>;
  for (const Layout layout : {Layout::kDense, Layout::kHeadsFirst}) {
    for (const int64_t width : {1, 7, 8, 9, 128, 515}) {
      Case a{.name = "rows", .s_q = 5, .s_kv = 5, .b = 2, .h = 3};
      a.v = a.nope = width;
      const Problem p = make_problem<T>(a);
      const T nan = to_number<T>(NAN);
      Rows<T> x(layout, 5, 2, 3, {width}, nan),
          y(layout, 5, 2, 3, {width}, nan);
      x.fill(0, p.q_nope);
      y.fill(0, p.d_out);
      Rows<Real> delta(layout, 5, 2, 3, {1}, Real{-1});
      row_dots(x.const_view(0), y.const_view(0), delta.view(0), 5, 2, 3, width);
      EXPECT_TRUE(delta.gaps_untouched());
      const Tensor actual = delta.read(0);
      for (size_t row = 0; row < actual.values.size(); ++row) {
        double sum = 0, size = 0;
        for (int64_t i = 0; i < width; ++i) {
          const size_t at =
              row * static_cast<size_t>(width + i * 0) + static_cast<size_t>(i);
          const double term = p.q_nope.values[at] * p.d_out.values[at];
          sum += term;
          size += std::abs(term);
        }
        // Each of at most width / 8 + 8 additions in a chain rounds once.
        const double additions = static_cast<double>(width) / 8 + 9;
        EXPECT_NEAR(
            actual.values[row], sum, additions * kEpsilon<Real> * size / 2)
            << "width " << width << " row " << row;
      }
    }
  }
}

TEST(RowDots, RefuseImpossibleArguments) {
  const auto call = [](int64_t s, int64_t b, int64_t h, int64_t w) {
    return message_of([&] { row_dots<float>({}, {}, {}, s, b, h, w); });
  };
  expect_contains(call(-1, 1, 1, 1), "[row_dots] tokens >= 0 (-1 vs 0)");
  expect_contains(call(1, 0, 1, 1), "[row_dots] batch >= 1 (0 vs 1)");
  expect_contains(call(1, 1, 0, 1), "[row_dots] heads >= 1 (0 vs 1)");
  expect_contains(call(1, 1, 1, 0), "[row_dots] width >= 1 (0 vs 1)");
  expect_contains(call(3, 1, 1, 1), "[row_dots] out.data != nullptr. s 3");
  EXPECT_NO_THROW(row_dots<float>({}, {}, {}, 0, 1, 1, 1));
}

} // namespace
} // namespace laga::kernels::test
