#include "laga/attention/norm_rotate.h"

#include "laga/attention/dtype.h"
#include "laga/attention/memory.h"
#include "laga/attention/rotation.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/sum.h>
#include <torch/csrc/autograd/custom_function.h>

namespace laga {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

namespace {

struct NormRotateFunction : torch::autograd::Function<NormRotateFunction> {
  static at::Tensor forward(
      AutogradContext* ctx,
      const at::Tensor& x,
      const at::Tensor& weight,
      const NormRotate& options) {
    const int64_t c = weight.size(0);
    const at::Tensor latent =
        x.narrow(-1, 0, c).to(accumulator_of(x.scalar_type()));
    const at::Tensor inverse_rms =
        at::rsqrt(latent.square().mean(-1, /*keepdim=*/true) + options.eps);
    at::Tensor result = at::empty_like(x);
    result.narrow(-1, 0, c).copy_(latent * inverse_rms * weight);
    rotate_rest(
        x, result, c, options.rotation, options.layout, /*transposed=*/false);
    ctx->save_for_backward({x, weight, options.rotation, inverse_rms});
    ctx->saved_data["layout"] = static_cast<int64_t>(options.layout);
    return result;
  }

  // With y = x / rms * w and g = dy * w: dx = (g - xn mean(g xn)) / rms where
  // xn = x / rms; dw = sum over tokens of dy * xn.
  static tensor_list backward(AutogradContext* ctx, tensor_list d) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1], &rotation = saved[2];
    const at::Tensor& inverse_rms = saved[3];
    const int64_t c = weight.size(0);
    const auto accumulator = accumulator_of(x.scalar_type());
    const at::Tensor normed = x.narrow(-1, 0, c).to(accumulator) * inverse_rms;
    const at::Tensor d_y = d[0].narrow(-1, 0, c).to(accumulator);
    const at::Tensor g = d_y * weight;
    const at::Tensor projection = (g * normed).mean(-1, /*keepdim=*/true);

    at::Tensor d_x = at::empty_like(x);
    d_x.narrow(-1, 0, c).copy_((g - normed * projection) * inverse_rms);
    const auto layout =
        static_cast<RopeLayout>(ctx->saved_data["layout"].toInt());
    rotate_rest(d[0], d_x, c, rotation, layout, /*transposed=*/true);

    const ChargeWeightGradients charge;
    const at::Tensor d_weight =
        (d_y * normed).sum(at::IntArrayRef{0, 1}).to(weight.scalar_type());
    return {d_x, d_weight, at::Tensor()};
  }

 private:
  // Columns c and up of `from` [s, b, c + r], rotated into `to`.
  static void rotate_rest(
      const at::Tensor& from,
      const at::Tensor& to,
      int64_t c,
      const at::Tensor& rotation,
      RopeLayout layout,
      bool transposed) {
    const int64_t r = from.size(-1) - c;
    if (r == 0) return;
    const at::Tensor rest = to.narrow(-1, c, r);
    rest.copy_(from.narrow(-1, c, r));
    rotate_(rest.unsqueeze(2), rotation, layout, transposed);
  }
};

} // namespace

at::Tensor norm_rotate(
    const at::Tensor& x, const at::Tensor& weight, const NormRotate& options) {
  return NormRotateFunction::apply(x, weight, options);
}

} // namespace laga
