#include "laga/attention/norm_rotate.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/randn.h>
#include <torch/csrc/autograd/autograd.h>

#include <gtest/gtest.h>

namespace laga {
namespace {

// A widening that is none (fp32 to fp32) is a view: what is computed from it
// must not be written over what was saved.
TEST(NormRotate, LeavesWhatItSavedAlone) {
  for (const at::ScalarType dtype : {at::kBFloat16, at::kFloat, at::kDouble}) {
    const auto options = at::TensorOptions().dtype(dtype);
    const at::Tensor x = at::randn({5, 2, 12}, options).requires_grad_(true);
    const at::Tensor before = x.detach().clone();
    const at::Tensor weight = at::randn({12}, options).requires_grad_(true);
    const at::Tensor y = norm_rotate(x, weight, {1e-6});
    const auto gradients = [&] {
      return torch::autograd::grad(
          {y}, {x, weight}, {at::ones_like(y)}, /*retain_graph=*/true);
    };
    const auto first = gradients(), second = gradients();
    EXPECT_TRUE(at::equal(x.detach(), before)) << dtype;
    EXPECT_TRUE(at::equal(first[0], second[0])) << dtype;
    EXPECT_TRUE(at::equal(first[1], second[1])) << dtype;
  }
}

} // namespace
} // namespace laga
