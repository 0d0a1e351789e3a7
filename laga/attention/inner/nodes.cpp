#include "laga/attention/inner/nodes.h"

#include "laga/attention/memory.h"
#include "laga/core/check.h"

#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/custom_function.h>

#include <utility>

namespace laga {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

namespace {

// The tables live for ever, so a pointer to a row can be kept as a number.
void keep(
    AutogradContext* ctx,
    const InnerAttention& inner,
    const AttentionOptions& options) {
  ctx->saved_data["inner"] =
      static_cast<int64_t>(reinterpret_cast<intptr_t>(&inner));
  ctx->saved_data["scale"] = options.softmax_scale;
  ctx->saved_data["causal"] = options.causal;
  ctx->saved_data["delta_given"] = options.delta_given;
}
const InnerAttention& kept_inner(AutogradContext* ctx) {
  return *reinterpret_cast<const InnerAttention*>(
      static_cast<intptr_t>(ctx->saved_data["inner"].toInt()));
}
AttentionOptions kept_options(AutogradContext* ctx) {
  return {
      ctx->saved_data["scale"].toDouble(),
      ctx->saved_data["causal"].toBool(),
      ctx->saved_data["delta_given"].toBool()};
}

// Contiguous, whatever x's strides.
at::Tensor empty_contiguous(const at::Tensor& x) {
  return at::empty(x.sizes(), x.options());
}

// How three inputs are parts of what the routine takes, and which routine.

// q [S, b, h, nope + r], kv [S, b, h, nope + v], k_pe [S, b, h | 1, r]
struct HeadSpace {
  static constexpr auto kForward = &InnerAttention::forward;
  static constexpr auto kBackward = &InnerAttention::backward;

  static AttentionTensors parts(
      const at::Tensor& q, const at::Tensor& kv, const at::Tensor& k_pe) {
    const int64_t r = k_pe.size(-1);
    const int64_t nope = q.size(-1) - r;
    const auto q_parts = q.split_with_sizes({nope, r}, -1);
    const auto kv_parts = kv.split_with_sizes({nope, kv.size(-1) - nope}, -1);
    return {q_parts[0], q_parts[1], kv_parts[0], k_pe, kv_parts[1]};
  }
  static int64_t out_width(const AttentionTensors& in) {
    return in.v.size(-1);
  }
  static at::Tensor empty_last(const at::Tensor& k_pe) {
    return empty_contiguous(k_pe);
  }
};

// q_latent [S, b, h, c], q_pe [S, b, h, r], latent [S, b, c + r]
struct LatentSpace {
  static constexpr auto kForward = &InnerAttention::forward;
  static constexpr auto kBackward = &InnerAttention::backward;

  static AttentionTensors parts(
      const at::Tensor& q_latent,
      const at::Tensor& q_pe,
      const at::Tensor& latent) {
    const auto kv = latent.unsqueeze(2).split_with_sizes(
        {q_latent.size(-1), q_pe.size(-1)}, -1);
    return {q_latent, q_pe, kv[0], kv[1], kv[0]};
  }
  static int64_t out_width(const AttentionTensors& in) {
    return in.v.size(-1);
  }
  static at::Tensor empty_last(const at::Tensor& latent) {
    return empty_contiguous(latent);
  }
};

// q [S, b, h, nope + r], latent [S, b, c + r], kv_b [h (nope + v), c]
struct Streamed {
  static constexpr auto kForward = &InnerAttention::forward_latent;
  static constexpr auto kBackward = &InnerAttention::backward_latent;

  static LatentTensors parts(
      const at::Tensor& q, const at::Tensor& latent, const at::Tensor& kv_b) {
    const int64_t r = latent.size(-1) - kv_b.size(-1);
    const auto q_parts = q.split_with_sizes({q.size(-1) - r, r}, -1);
    return {q_parts[0], q_parts[1], latent, kv_b};
  }
  static int64_t out_width(const LatentTensors& in) {
    return in.kv_b.size(0) / in.q_nope.size(2) - in.q_nope.size(-1);
  }
  static at::Tensor empty_last(const at::Tensor& kv_b) {
    const ChargeWeightGradients charge;
    return empty_contiguous(kv_b);
  }
};

// Returns out [S, b, h, w_v] and, where delta is given, lse [S, b, h].
template <class Space>
struct AttentionNode : torch::autograd::Function<AttentionNode<Space>> {
  static tensor_list forward(
      AutogradContext* ctx,
      const at::Tensor& a,
      const at::Tensor& b,
      const at::Tensor& c,
      const InnerAttention& inner,
      const AttentionOptions& options) {
    const auto in = Space::parts(a, b, c);
    const at::Tensor& q = in.q_nope;
    at::Tensor out = at::empty(
        {q.size(0), q.size(1), q.size(2), Space::out_width(in)}, q.options());
    tensor_list kept = (inner.*Space::kForward)(in, options, out);
    tensor_list results{out};
    if (options.delta_given) results.push_back(kept[0]);
    kept.insert(kept.begin(), {a, b, c});
    ctx->save_for_backward(std::move(kept));
    keep(ctx, inner, options);
    return results;
  }

  static tensor_list backward(AutogradContext* ctx, tensor_list d) {
    tensor_list saved = ctx->get_saved_variables();
    const at::Tensor a = saved[0], b = saved[1], c = saved[2];
    saved.erase(saved.begin(), saved.begin() + 3);
    if (kept_options(ctx).delta_given) saved.push_back(d[1].neg());
    at::Tensor d_a, d_b, d_c;
    const auto make_gradients = [&] {
      d_a = empty_contiguous(a);
      d_b = empty_contiguous(b);
      d_c = Space::empty_last(c);
      return Space::parts(d_a, d_b, d_c);
    };
    (kept_inner(ctx).*Space::kBackward)(
        Space::parts(a, b, c),
        kept_options(ctx),
        std::move(saved),
        d[0],
        make_gradients);
    return {d_a, d_b, d_c, at::Tensor(), at::Tensor()};
  }
};

template <class Space>
Attended attend(
    const at::Tensor& a,
    const at::Tensor& b,
    const at::Tensor& c,
    const InnerAttention& inner,
    const AttentionOptions& options) {
  tensor_list results = AttentionNode<Space>::apply(a, b, c, inner, options);
  results.resize(2);
  return {results[0], results[1]};
}

} // namespace

Attended head_attention(
    const at::Tensor& q,
    const at::Tensor& kv,
    const at::Tensor& k_pe,
    const InnerAttention& inner,
    const AttentionOptions& options) {
  return attend<HeadSpace>(q, kv, k_pe, inner, options);
}

Attended latent_attention(
    const at::Tensor& q_latent,
    const at::Tensor& q_pe,
    const at::Tensor& latent,
    const InnerAttention& inner,
    const AttentionOptions& options) {
  return attend<LatentSpace>(q_latent, q_pe, latent, inner, options);
}

Attended streamed_attention(
    const at::Tensor& q,
    const at::Tensor& latent,
    const at::Tensor& kv_b,
    const InnerAttention& inner,
    const AttentionOptions& options) {
  return attend<Streamed>(q, latent, kv_b, inner, options);
}

} // namespace laga
