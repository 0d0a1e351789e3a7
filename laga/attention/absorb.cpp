#include "laga/attention/absorb.h"

#include "laga/attention/memory.h"
#include "laga/attention/product.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

namespace laga {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

namespace {

// [S, b, h, w] -> [S b, w] of one head.
at::Tensor rows_of_head(const at::Tensor& x, int64_t head) {
  return x.select(2, head).reshape({x.size(0) * x.size(1), x.size(3)});
}

struct ThroughKvHalf : torch::autograd::Function<ThroughKvHalf> {
  static at::Tensor forward(
      AutogradContext* ctx,
      const at::Tensor& x,
      const at::Tensor& kv_b,
      int64_t nope,
      bool keys) {
    ctx->save_for_backward({x, kv_b});
    ctx->saved_data["nope"] = nope;
    ctx->saved_data["keys"] = keys;
    const int64_t width = keys ? kv_b.size(1) : kv_b.size(0) / x.size(2) - nope;
    const at::Tensor y =
        at::empty({x.size(0), x.size(1), x.size(2), width}, x.options());
    for (int64_t head = 0; head < x.size(2); ++head) {
      at::Tensor y_head = rows_of_head(y, head);
      const at::Tensor w = half_of_head(kv_b, x.size(2), head, nope, keys);
      product_into(y_head, rows_of_head(x, head), keys ? w : w.t());
    }
    return y;
  }

  static tensor_list backward(AutogradContext* ctx, tensor_list d) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &x = saved[0], &kv_b = saved[1];
    const int64_t nope = ctx->saved_data["nope"].toInt();
    const bool keys = ctx->saved_data["keys"].toBool();
    const at::Tensor d_x = at::empty(x.sizes(), x.options());
    at::Tensor d_kv_b;
    {
      const ChargeWeightGradients charge;
      d_kv_b = at::zeros(kv_b.sizes(), kv_b.options());
    }
    for (int64_t head = 0; head < x.size(2); ++head) {
      const at::Tensor d_y = rows_of_head(d[0], head);
      const at::Tensor x_head = rows_of_head(x, head);
      const at::Tensor w = half_of_head(kv_b, x.size(2), head, nope, keys);
      at::Tensor d_x_head = rows_of_head(d_x, head);
      product_into(d_x_head, d_y, keys ? w.t() : w);
      at::Tensor d_w = half_of_head(d_kv_b, x.size(2), head, nope, keys);
      if (keys) {
        product_into(d_w, x_head.t(), d_y);
      } else {
        product_into(d_w, d_y.t(), x_head);
      }
    }
    return {d_x, d_kv_b, at::Tensor(), at::Tensor()};
  }

 private:
  // A head's rows of kv_b: nope rows of keys, then v rows of values.
  static at::Tensor half_of_head(
      const at::Tensor& kv_b,
      int64_t heads,
      int64_t head,
      int64_t nope,
      bool keys) {
    const int64_t rows = kv_b.size(0) / heads;
    return kv_b.narrow(
        0, head * rows + (keys ? 0 : nope), keys ? nope : rows - nope);
  }
};

} // namespace

at::Tensor through_kv_half(
    const at::Tensor& x,
    const at::Tensor& kv_b,
    int64_t qk_nope_head_dim,
    KvHalf half) {
  return ThroughKvHalf::apply(x, kv_b, qk_nope_head_dim, half == KvHalf::kKeys);
}

} // namespace laga
