// What `sdpa` and `stream` do on other devices, shown on the CPU.
#include "laga/attention/inner/aten_op.h"

#include "laga/core/check.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/randn.h>

#include <gtest/gtest.h>

namespace laga {
namespace {

double largest(const at::Tensor& x) {
  return x.abs().max().item<double>();
}

TEST(AtenOp, OfAnyDeviceComputesWhatTheOneForTheCpuDoes) {
  const auto options = at::TensorOptions().dtype(at::kDouble);
  const int64_t b = 2, h = 3, S = 70, W = 24;
  const at::Tensor shared = at::randn({b, 1, S, W}, options);
  const OpInputs in{
      at::randn({b, h, S, W}, options),
      shared.expand({b, h, S, W}), // what heads share stays one in memory
      at::randn({b, h, S, W}, options)};
  const at::Tensor d_out = at::randn({b, h, S, W}, options);
  for (const bool causal : {true, false}) {
    const AttentionOptions how{0.3, causal};
    const auto [out, lse] = kCpuOp.forward(in, how);
    const auto [any_out, none] = kAnyDeviceOp.forward(in, how);
    EXPECT_LT(largest(any_out - out), 1e-13);
    EXPECT_FALSE(none.defined());
    const auto [d_q, d_k, d_v] = kCpuOp.backward(in, how, out, lse, d_out);
    const auto [any_q, any_k, any_v] =
        kAnyDeviceOp.backward(in, how, any_out, none, d_out);
    EXPECT_LT(largest(any_q - d_q), 1e-12);
    EXPECT_LT(largest(any_k - d_k), 1e-12);
    EXPECT_LT(largest(any_v - d_v), 1e-12);
  }
}

TEST(AtenOp, OfAnyDeviceRefusesToFallBackOnScores) {
  // Widths of keys and values that no fused op of the CPU takes.
  const auto options = at::TensorOptions().dtype(at::kDouble);
  const at::Tensor q = at::randn({1, 2, 8, 24}, options);
  const OpInputs in{q, q, at::randn({1, 2, 8, 16}, options)};
  EXPECT_THROW(kAnyDeviceOp.forward(in, {0.3, true}), InvalidArgument);
}

TEST(AtenOp, StreamBecomesALoopOverAtenOnOtherDevices) {
  const at::Device elsewhere(at::kCUDA, 0);
  EXPECT_EQ(on_device(kStreamAttention, elsewhere).name, "stream-sdpa");
  EXPECT_EQ(on_device(kStreamAttention, at::kCPU).name, "stream");
  EXPECT_EQ(on_device(kSdpaAttention, elsewhere).name, "sdpa");
  EXPECT_EQ(on_device(kEagerAttention, elsewhere).name, "eager");
  EXPECT_THROW(on_device(kFusedAttention, elsewhere), InvalidArgument);
}

} // namespace
} // namespace laga
