// Products of bf16 by our kernels, also on machines that would leave them to
// ATen.
#include "laga/attention/product.h"

#include "laga/kernels/attention.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>

#include <gtest/gtest.h>

#include <array>
#include <cstdlib>

namespace laga {
namespace {

at::Tensor draw(int64_t rows, int64_t columns, uint64_t seed) {
  return at::randn(
             {rows, columns},
             at::make_generator<at::CPUGeneratorImpl>(seed),
             at::kFloat)
      .to(at::kBFloat16);
}

// fp32 sums of products of bf16 are exact to 2^-24 of their terms, so what is
// left is one rounding to bf16, half a unit in the last of 8 bits, and the
// sum's own, far smaller.
void expect_rounded_product(
    const at::Tensor& result, const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor exact = at::mm(a.to(at::kDouble), b.to(at::kDouble));
  const at::Tensor bound =
      exact.abs() * 0x1p-8 +
      at::mm(a.to(at::kDouble).abs(), b.to(at::kDouble).abs()) * 0x1p-18;
  const at::Tensor excess = (result.to(at::kDouble) - exact).abs() - bound;
  EXPECT_LE(excess.max().item<double>(), 0) << a.sizes() << b.sizes();
}

// Around a tile of 256 and registers of 8 and 16, both layouts of both.
class Product : public testing::Test {
 protected:
  void SetUp() override {
    setenv("LAGA_ISA", "portable", /*overwrite=*/1);
    ASSERT_NE(kernels::kernels<Bf16>().matmul_tile, nullptr);
  }
  void TearDown() override {
    unsetenv("LAGA_ISA");
  }
};

TEST_F(Product, OfBf16IsRoundedOnceInEveryLayout) {
  for (const auto& [m, n, k] : std::array<std::array<int64_t, 3>, 6>{
           {{1, 1, 1},
            {7, 9, 3},
            {255, 257, 31},
            {256, 256, 256},
            {300, 17, 515},
            {2, 600, 700}}}) {
    for (const bool a_turned : {false, true}) {
      for (const bool b_turned : {false, true}) {
        const at::Tensor a = a_turned ? draw(k, m, 1).t() : draw(m, k, 1);
        const at::Tensor b = b_turned ? draw(n, k, 2).t() : draw(k, n, 2);
        expect_rounded_product(product(a, b), a, b);
      }
    }
  }
}

TEST_F(Product, GoesIntoASliceAndLeavesTheRestAlone) {
  const at::Tensor a = draw(33, 40, 1), b = draw(40, 50, 2);
  const at::Tensor buffer = draw(33, 70, 3), before = buffer.clone();
  at::Tensor slice = buffer.narrow(1, 10, 50);
  product_into(slice, a, b);
  expect_rounded_product(slice, a, b);
  EXPECT_TRUE(buffer.narrow(1, 0, 10).equal(before.narrow(1, 0, 10)));
  EXPECT_TRUE(buffer.narrow(1, 60, 10).equal(before.narrow(1, 60, 10)));
}

TEST_F(Product, OfASliceHasTheBitsOfTheWhole) {
  const at::Tensor a = draw(300, 270, 1), b = draw(270, 310, 2);
  const at::Tensor whole = product(a, b);
  EXPECT_TRUE(product(a.narrow(0, 100, 77), b).equal(whole.narrow(0, 100, 77)));
  EXPECT_TRUE(product(a, b.narrow(1, 90, 64)).equal(whole.narrow(1, 90, 64)));
}

} // namespace
} // namespace laga
