#include "laga/attention/projections.h"

#include "laga/attention/dtype.h"
#include "laga/attention/head_sum.h"
#include "laga/attention/inner/kernel_call.h"
#include "laga/attention/memory.h"
#include "laga/attention/product.h"
#include "laga/attention/rotation.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <optional>

namespace laga {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

namespace {

at::Tensor multiply(
    const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  return bias.defined() ? product_plus(bias, x, weight.t())
                        : product(x, weight.t());
}

// d_y [T, out], x [T, in]. Returns [out, in].
at::Tensor weight_gradient(const at::Tensor& d_y, const at::Tensor& x) {
  const ChargeWeightGradients charge;
  return product(d_y.t(), x);
}

at::Tensor bias_gradient(const at::Tensor& bias, const at::Tensor& d_y) {
  if (!bias.defined()) return {};
  const ChargeWeightGradients charge;
  return at::sum(d_y, 0);
}

// [P, s, b, n / P, w] -> [s b, n w]. The one unpack; a view for one rank.
at::Tensor unpacked(const at::Tensor& x) {
  const int64_t tokens = x.size(1) * x.size(2);
  return x.permute({1, 2, 0, 3, 4})
      .reshape({tokens, x.size(0) * x.size(3) * x.size(4)});
}

// Functions take what may be missing as optional: undefined tensors are no
// inputs of a node.
using MaybeTensor = std::optional<at::Tensor>;

MaybeTensor maybe(const at::Tensor& x) {
  return x.defined() ? MaybeTensor(x) : std::nullopt;
}

struct Linear : torch::autograd::Function<Linear> {
  static at::Tensor forward(
      AutogradContext* ctx,
      const at::Tensor& x,
      const at::Tensor& weight,
      const MaybeTensor& bias) {
    ctx->save_for_backward({x, weight, bias.value_or(at::Tensor())});
    return multiply(x, weight, bias.value_or(at::Tensor()));
  }
  static tensor_list backward(AutogradContext* ctx, tensor_list d) {
    const auto saved = ctx->get_saved_variables();
    return {
        product(d[0], saved[1]),
        weight_gradient(d[0], saved[0]),
        bias_gradient(saved[2], d[0])};
  }
};

struct OwnRows : torch::autograd::Function<OwnRows> {
  static at::Tensor forward(
      AutogradContext* ctx,
      const at::Tensor& weight,
      int64_t begin,
      int64_t count) {
    ctx->saved_data["begin"] = begin;
    ctx->saved_data["rows"] = weight.size(0);
    return weight.narrow(0, begin, count);
  }
  static tensor_list backward(AutogradContext* ctx, tensor_list d) {
    const ChargeWeightGradients charge;
    const int64_t rows = ctx->saved_data["rows"].toInt();
    const at::Tensor whole = at::zeros({rows, d[0].size(1)}, d[0].options());
    whole.narrow(0, ctx->saved_data["begin"].toInt(), d[0].size(0)).copy_(d[0]);
    return {whole, at::Tensor(), at::Tensor()};
  }
};

struct ProjectToPeers : torch::autograd::Function<ProjectToPeers> {
  static at::Tensor forward(
      AutogradContext* ctx,
      const at::Tensor& x,
      const at::Tensor& weight,
      const HeadProjection& heads) {
    ctx->save_for_backward({x, weight, heads.rotation});
    ctx->saved_data["layout"] = static_cast<int64_t>(heads.layout);
    ctx->saved_data["rope_dim"] = heads.rope_dim;
    const int64_t rows = weight.size(0) / heads.ranks;
    const int64_t heads_each = heads.heads / heads.ranks;
    const at::Tensor buffer = at::empty(
        {heads.ranks,
         heads.local_seq,
         heads.batch,
         heads_each,
         rows / heads_each},
        x.options());
    for (int64_t p = 0; p < heads.ranks; ++p) {
      at::Tensor slice = buffer.select(0, p).view({x.size(0), rows});
      product_into(slice, x, weight.narrow(0, p * rows, rows).t());
      rotate_heads(
          ctx, buffer.select(0, p), heads.rotation, /*transposed=*/false);
    }
    return buffer;
  }
  static tensor_list backward(AutogradContext* ctx, tensor_list d) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1], &rotation = saved[2];
    at::Tensor d_heads = unpacked(d[0]);
    if (rotation.defined()) {
      // The engine's gradient is not ours to change.
      if (d_heads.is_alias_of(d[0])) d_heads = d_heads.clone();
      const int64_t width = d[0].size(-1);
      rotate_heads(
          ctx,
          d_heads.view(
              {d[0].size(1), d[0].size(2), d_heads.size(1) / width, width}),
          rotation,
          /*transposed=*/true);
    }
    d[0].reset();
    return {
        product(d_heads, weight), weight_gradient(d_heads, x), at::Tensor()};
  }

 private:
  // x [s, b, heads, width]
  static void rotate_heads(
      AutogradContext* ctx,
      const at::Tensor& x,
      const at::Tensor& rotation,
      bool transposed) {
    const int64_t rope_dim = ctx->saved_data["rope_dim"].toInt();
    const auto layout =
        static_cast<RopeLayout>(ctx->saved_data["layout"].toInt());
    rotate_(
        x.narrow(-1, x.size(-1) - rope_dim, rope_dim),
        rotation,
        layout,
        transposed);
  }
};

// x, d_x [P, s, b, n / P, w], x as unpacked [s b, n w]. Returns -rowsum(x d_x).
at::Tensor minus_row_dots(const at::Tensor& unpacked_x, const at::Tensor& d_x) {
  at::Tensor dots = at::empty(
      d_x.sizes().slice(0, 4),
      d_x.options().dtype(accumulator_of(d_x.scalar_type())));
  const at::Tensor x = unpacked_x.view(
      {d_x.size(1), d_x.size(2), d_x.size(0), d_x.size(3), d_x.size(4)});
  for (int64_t p = 0; p < d_x.size(0); ++p)
    row_dots_out(dots[p], x.select(2, p), d_x[p]);
  return dots.neg_();
}

struct ProjectFromPeers : torch::autograd::Function<ProjectFromPeers> {
  static at::Tensor forward(
      AutogradContext* ctx,
      const at::Tensor& returned,
      const at::Tensor& weight,
      const MaybeTensor& bias,
      const MaybeTensor& lse) {
    const at::Tensor heads = unpacked(returned);
    ctx->save_for_backward({heads, weight, bias.value_or(at::Tensor())});
    ctx->saved_data["sizes"] = returned.sizes().vec();
    ctx->saved_data["lse"] = lse.has_value();
    return multiply(heads, weight, bias.value_or(at::Tensor()));
  }
  static tensor_list backward(AutogradContext* ctx, tensor_list d) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &heads = saved[0], &weight = saved[1];
    const std::vector<int64_t> sizes = ctx->saved_data["sizes"].toIntVector();
    const at::Tensor buffer = at::empty(sizes, d[0].options());
    const int64_t columns = sizes[3] * sizes[4];
    for (int64_t p = 0; p < sizes[0]; ++p) {
      at::Tensor slice = buffer.select(0, p).view({d[0].size(0), columns});
      product_into(slice, d[0], weight.narrow(1, p * columns, columns));
    }
    at::Tensor d_lse;
    if (ctx->saved_data["lse"].toBool()) d_lse = minus_row_dots(heads, buffer);
    return {
        buffer,
        weight_gradient(d[0], heads),
        bias_gradient(saved[2], d[0]),
        d_lse};
  }
};

struct RepeatForPeers : torch::autograd::Function<RepeatForPeers> {
  static at::Tensor forward(
      AutogradContext* /*ctx*/,
      const at::Tensor& x,
      int64_t ranks,
      int64_t heads_each) {
    const at::Tensor one = x.unsqueeze(0).unsqueeze(-2);
    return one.expand({ranks, x.size(0), x.size(1), heads_each, x.size(2)})
        .contiguous();
  }
  static tensor_list backward(AutogradContext* /*ctx*/, tensor_list d) {
    const at::Tensor& copies = d[0];
    HeadSum sum(
        {copies.size(1), copies.size(2), copies.size(4)}, copies.options());
    for (int64_t p = 0; p < copies.size(0); ++p) {
      for (int64_t head = 0; head < copies.size(3); ++head) {
        sum.add(copies.select(0, p).select(2, head));
      }
    }
    return {sum.rounded(), at::Tensor(), at::Tensor()};
  }
};

} // namespace

at::Tensor linear(
    const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  return Linear::apply(x, weight, maybe(bias));
}

at::Tensor own_rows(
    const at::Tensor& weight, int64_t row_begin, int64_t row_count) {
  return OwnRows::apply(weight, row_begin, row_count);
}

at::Tensor project_to_peers(
    const at::Tensor& x,
    const at::Tensor& weight,
    const HeadProjection& heads) {
  return ProjectToPeers::apply(x, weight, heads);
}

at::Tensor project_from_peers(
    const at::Tensor& returned,
    const at::Tensor& weight,
    const at::Tensor& bias,
    const at::Tensor& lse) {
  return ProjectFromPeers::apply(returned, weight, maybe(bias), maybe(lse));
}

at::Tensor repeat_for_peers(
    const at::Tensor& x, int64_t ranks, int64_t heads_each) {
  return RepeatForPeers::apply(x, ranks, heads_each);
}

} // namespace laga
