#include "laga/attention/attention.h"

#include "laga/attention/absorb.h"
#include "laga/attention/dtype.h"
#include "laga/attention/exchange.h"
#include "laga/attention/inner/inner.h"
#include "laga/attention/inner/nodes.h"
#include "laga/attention/norm_rotate.h"
#include "laga/attention/projections.h"
#include "laga/core/check.h"

#include <optional>
#include <utility>

namespace laga {

namespace {

// [s, b, w] -> [s b, w]: what projections take.
at::Tensor rows(const at::Tensor& x) {
  return x.flatten(0, 1);
}

// [P, s, b, h, w] -> [S, b, h, w]: what arrived is already in the order of the
// whole sequence.
at::Tensor whole_sequence(const at::Tensor& x) {
  return x.flatten(0, 1);
}

// latent [s, b, c], normed, beside k_pe [s, b, r], rotated by global positions.
at::Tensor compress_keys(
    const at::Tensor& hidden, const Weights& w, const Context& ctx) {
  const at::Tensor x = linear(rows(hidden), w.kv_a_proj, w.kv_a_proj_bias);
  return norm_rotate(
      x.view({hidden.size(0), hidden.size(1), -1}),
      w.kv_a_layernorm,
      {ctx.config.latent_norm_eps, ctx.config.rope, ctx.rotation});
}

// Keys and values on their way; which of them depends on the form's KeyPath.
struct PendingKeys {
  std::optional<Pending> kv;     // [P, s, b, n / P, nope + v]
  std::optional<Pending> k_pe;   // [P, s, b, n / P, r], or gathered [S, b, r]
  std::optional<Pending> latent; // [S, b, c + r]
};

struct Keys {
  at::Tensor kv;     // [S, b, n / P, nope + v]
  at::Tensor k_pe;   // [S, b, n / P | 1, r]
  at::Tensor latent; // [S, b, c + r] instead of the two above
};

HeadProjection head_projection(const at::Tensor& x, const Context& ctx) {
  return {x.size(0), x.size(1), ctx.shape.ranks, ctx.config.num_heads};
}

// Expanding before the move sends n (nope + v) numbers a token, and k_pe once
// or once a head; moving the latent sends c + r to each peer and expands after.
PendingKeys send_keys(
    const at::Tensor& compressed, const Weights& w, const Context& ctx) {
  PendingKeys pending;
  if (ctx.form.key == KeyPath::kLatent) {
    pending.latent = start(compressed, Move::kAllGather, "latent", ctx);
    return pending;
  }
  const auto parts = compressed.split_with_sizes(
      {ctx.config.kv_lora_rank, ctx.config.qk_rope_head_dim}, -1);
  pending.kv = start(
      project_to_peers(
          rows(parts[0]), w.kv_b_proj, head_projection(compressed, ctx)),
      Move::kAllToAll,
      "kv",
      ctx);
  pending.k_pe =
      ctx.form.key == KeyPath::kHeads
          ? start(
                repeat_for_peers(parts[1], ctx.shape.ranks, ctx.local_heads()),
                Move::kAllToAll,
                "k_pe",
                ctx)
          : start(parts[1], Move::kAllGather, "k_pe", ctx);
  return pending;
}

Keys receive_keys(PendingKeys pending, const Context& ctx) {
  Keys keys;
  if (pending.latent) {
    keys.latent = std::move(*pending.latent).finish();
    return keys;
  }
  keys.kv = whole_sequence(std::move(*pending.kv).finish());
  keys.k_pe = std::move(*pending.k_pe).finish();
  keys.k_pe = ctx.form.key == KeyPath::kHeads ? whole_sequence(keys.k_pe)
                                              : keys.k_pe.unsqueeze(2);
  return keys;
}

// All heads of the local tokens go out, H_r of all tokens comes back:
// [S, b, n / P, nope + r].
at::Tensor exchange_queries(
    const at::Tensor& hidden, const Weights& w, const Context& ctx) {
  at::Tensor x = rows(hidden);
  if (ctx.config.q_lora_rank > 0) {
    const at::Tensor compressed = linear(x, w.q_a_proj, w.q_a_proj_bias);
    x = rows(norm_rotate(
        compressed.view({hidden.size(0), hidden.size(1), -1}),
        w.q_a_layernorm,
        {ctx.config.latent_norm_eps}));
  }
  HeadProjection heads = head_projection(hidden, ctx);
  heads.layout = ctx.config.rope;
  heads.rope_dim = ctx.config.qk_rope_head_dim;
  heads.rotation = ctx.rotation;
  const at::Tensor q = project_to_peers(
      x, ctx.config.q_lora_rank > 0 ? w.q_b_proj : w.q_proj, heads);
  return whole_sequence(start(q, Move::kAllToAll, "q", ctx).finish());
}

// kv_b's rows of H_r, [n / P (nope + v), c].
at::Tensor own_kv_b(const Weights& w, const Context& ctx) {
  const int64_t count = w.kv_b_proj.size(0) / ctx.shape.ranks;
  return own_rows(w.kv_b_proj, ctx.comm->rank() * count, count);
}

// K and V of H_r for the whole sequence, made from the gathered latent: LAGA's
// local expansion.
void expand_own_heads(Keys& keys, const Weights& w, const Context& ctx) {
  const auto parts = keys.latent.split_with_sizes(
      {ctx.config.kv_lora_rank, ctx.config.qk_rope_head_dim}, -1);
  keys.kv = linear(rows(parts[0]), own_kv_b(w, ctx), at::Tensor())
                .view({ctx.shape.seq, ctx.shape.batch, ctx.local_heads(), -1});
  keys.k_pe = parts[1].unsqueeze(2);
  keys.latent.reset();
}

// Scores in latent space: kv_b's key half is folded into the queries, its value
// half into the output.
Attended attend_absorbed(
    const at::Tensor& q,
    const at::Tensor& latent,
    const Weights& w,
    const Context& ctx,
    const InnerAttention& inner,
    const AttentionOptions& options) {
  const int64_t nope = ctx.config.qk_nope_head_dim;
  const at::Tensor kv_b = own_kv_b(w, ctx);
  const auto parts =
      q.split_with_sizes({nope, ctx.config.qk_rope_head_dim}, -1);
  Attended attended = latent_attention(
      through_kv_half(parts[0], kv_b, nope, KvHalf::kKeys),
      parts[1],
      latent,
      inner,
      options);
  attended.out = through_kv_half(attended.out, kv_b, nope, KvHalf::kValues);
  return attended;
}

// out [S, b, n / P, v]
Attended attend(
    const at::Tensor& q, Keys keys, const Weights& w, const Context& ctx) {
  const AttentionOptions options{ctx.softmax_scale, ctx.causal, ctx.send_delta};
  const InnerAttention& inner = on_device(*ctx.inner, q.device());
  if (ctx.form.space == ScoreSpace::kLatent) {
    return attend_absorbed(q, keys.latent, w, ctx, inner, options);
  }
  if (inner.forward_latent) {
    return streamed_attention(q, keys.latent, own_kv_b(w, ctx), inner, options);
  }
  if (keys.latent.defined()) expand_own_heads(keys, w, ctx);
  return head_attention(q, keys.kv, keys.k_pe, inner, options);
}

// Every rank gets back all heads of its own tokens: [P, s, b, n / P, v]. Of lse
// only the gradient moves, from there to here, as "d_lse".
Attended return_heads(Attended attended, const Context& ctx) {
  const auto by_rank = [&ctx](const at::Tensor& x) {
    return x.unflatten(0, {ctx.shape.ranks, ctx.shape.local_seq()});
  };
  attended.out =
      start(by_rank(attended.out), Move::kAllToAll, "out", ctx).finish();
  if (attended.lse.defined()) {
    attended.lse = gradient_from_peers(by_rank(attended.lse), "lse", ctx);
  }
  return attended;
}

at::Tensor project_output(
    const Attended& returned, const Weights& w, const Context& ctx) {
  return project_from_peers(returned.out, w.o_proj, w.o_proj_bias, returned.lse)
      .view({ctx.shape.local_seq(), ctx.shape.batch, -1});
}

void check_inputs(
    const at::Tensor& hidden, const Weights& weights, const Context& ctx) {
  const std::vector<int64_t> expected{
      ctx.shape.local_seq(), ctx.shape.batch, ctx.config.hidden_size};
  LAGA_CHECK_EQ(
      hidden.sizes(),
      at::IntArrayRef(expected),
      "hidden is [local sequence, batch, hidden_size]");
  LAGA_CHECK(hidden.is_contiguous(), "hidden ", hidden.sizes());
  on_device(*ctx.inner, hidden.device());
  LAGA_CHECK_EQ(
      hidden.scalar_type(), torch_dtype(ctx.shape.dtype), "hidden's dtype");
  for (const NamedTensor& weight :
       named(weights_from(ctx.config, named(weights)))) {
    LAGA_CHECK_EQ(
        weight.tensor.scalar_type(), hidden.scalar_type(), weight.name);
  }
}

} // namespace

at::Tensor mla_attention(
    const at::Tensor& hidden, const Weights& weights, const Context& ctx) {
  check_inputs(hidden, weights, ctx);
  PendingKeys keys =
      send_keys(compress_keys(hidden, weights, ctx), weights, ctx);
  at::Tensor q = exchange_queries(hidden, weights, ctx);
  Attended out = attend(q, receive_keys(std::move(keys), ctx), weights, ctx);
  return project_output(return_heads(std::move(out), ctx), weights, ctx);
}

} // namespace laga
