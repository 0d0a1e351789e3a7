#include "laga/attention/inner/nodes.h"

#include "laga/core/check.h"

#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/custom_function.h>

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
}
const InnerAttention& kept_inner(AutogradContext* ctx) {
  return *reinterpret_cast<const InnerAttention*>(
      static_cast<intptr_t>(ctx->saved_data["inner"].toInt()));
}
AttentionOptions kept_options(AutogradContext* ctx) {
  return {
      ctx->saved_data["scale"].toDouble(), ctx->saved_data["causal"].toBool()};
}

// Saves inputs and whatever the routine wants to keep; get_saved_variables
// returns them in this order.
void save(
    AutogradContext* ctx, tensor_list inputs, std::vector<at::Tensor> extra) {
  for (at::Tensor& tensor : extra)
    inputs.push_back(std::move(tensor));
  ctx->save_for_backward(std::move(inputs));
}

// Contiguous, whatever x's strides.
at::Tensor empty_contiguous(const at::Tensor& x) {
  return at::empty(x.sizes(), x.options());
}

at::Tensor empty_like_heads(const at::Tensor& q, int64_t width) {
  return at::empty({q.size(0), q.size(1), q.size(2), width}, q.options());
}

struct HeadAttention : torch::autograd::Function<HeadAttention> {
  static at::Tensor forward(
      AutogradContext* ctx,
      const at::Tensor& q,
      const at::Tensor& kv,
      const at::Tensor& k_pe,
      const InnerAttention& inner,
      const AttentionOptions& options) {
    const AttentionTensors in = parts(q, kv, k_pe);
    const at::Tensor out = empty_like_heads(q, in.v.size(-1));
    save(ctx, {q, kv, k_pe}, inner.forward(in, options, out));
    keep(ctx, inner, options);
    return out;
  }
  static tensor_list backward(AutogradContext* ctx, tensor_list d) {
    tensor_list saved = ctx->get_saved_variables();
    const at::Tensor q = saved[0], kv = saved[1], k_pe = saved[2];
    saved.erase(saved.begin(), saved.begin() + 3);
    at::Tensor d_q, d_kv, d_k_pe;
    const auto make_gradients = [&] {
      d_q = empty_contiguous(q);
      d_kv = empty_contiguous(kv);
      d_k_pe = empty_contiguous(k_pe);
      return parts(d_q, d_kv, d_k_pe);
    };
    kept_inner(ctx).backward(
        parts(q, kv, k_pe),
        kept_options(ctx),
        std::move(saved),
        d[0],
        make_gradients);
    return {d_q, d_kv, d_k_pe, at::Tensor(), at::Tensor()};
  }

 private:
  static AttentionTensors parts(
      const at::Tensor& q, const at::Tensor& kv, const at::Tensor& k_pe) {
    const int64_t r = k_pe.size(-1);
    const int64_t nope = q.size(-1) - r;
    const auto q_parts = q.split_with_sizes({nope, r}, -1);
    const auto kv_parts = kv.split_with_sizes({nope, kv.size(-1) - nope}, -1);
    return {q_parts[0], q_parts[1], kv_parts[0], k_pe, kv_parts[1]};
  }
};

struct LatentAttention : torch::autograd::Function<LatentAttention> {
  static at::Tensor forward(
      AutogradContext* ctx,
      const at::Tensor& q_latent,
      const at::Tensor& q_pe,
      const at::Tensor& latent,
      const InnerAttention& inner,
      const AttentionOptions& options) {
    const AttentionTensors in = parts(q_latent, q_pe, latent);
    const at::Tensor out = empty_like_heads(q_latent, q_latent.size(-1));
    save(ctx, {q_latent, q_pe, latent}, inner.forward(in, options, out));
    keep(ctx, inner, options);
    return out;
  }
  static tensor_list backward(AutogradContext* ctx, tensor_list d) {
    tensor_list saved = ctx->get_saved_variables();
    const at::Tensor q_latent = saved[0], q_pe = saved[1], latent = saved[2];
    saved.erase(saved.begin(), saved.begin() + 3);
    at::Tensor d_q_latent, d_q_pe, d_latent;
    const auto make_gradients = [&] {
      d_q_latent = empty_contiguous(q_latent);
      d_q_pe = empty_contiguous(q_pe);
      d_latent = empty_contiguous(latent);
      return parts(d_q_latent, d_q_pe, d_latent);
    };
    kept_inner(ctx).backward(
        parts(q_latent, q_pe, latent),
        kept_options(ctx),
        std::move(saved),
        d[0],
        make_gradients);
    return {d_q_latent, d_q_pe, d_latent, at::Tensor(), at::Tensor()};
  }

 private:
  static AttentionTensors parts(
      const at::Tensor& q_latent,
      const at::Tensor& q_pe,
      const at::Tensor& latent) {
    const auto kv = latent.unsqueeze(2).split_with_sizes(
        {q_latent.size(-1), q_pe.size(-1)}, -1);
    return {q_latent, q_pe, kv[0], kv[1], kv[0]};
  }
};

} // namespace

at::Tensor head_attention(
    const at::Tensor& q,
    const at::Tensor& kv,
    const at::Tensor& k_pe,
    const InnerAttention& inner,
    const AttentionOptions& options) {
  return HeadAttention::apply(q, kv, k_pe, inner, options);
}

at::Tensor latent_attention(
    const at::Tensor& q_latent,
    const at::Tensor& q_pe,
    const at::Tensor& latent,
    const InnerAttention& inner,
    const AttentionOptions& options) {
  return LatentAttention::apply(q_latent, q_pe, latent, inner, options);
}

const InnerAttention& find_inner(std::string_view name) {
  if (name == kEagerAttention.name) return kEagerAttention;
  std::string known;
  for (const std::string& inner : inner_names()) {
    known += (known.empty() ? "" : ", ") + inner;
  }
  throw InvalidArgument(detail::concat(
      "[find_inner] unknown inner attention '", name, "'. Known: ", known));
}

std::vector<std::string> inner_names() {
  return {std::string(kEagerAttention.name)};
}

} // namespace laga
