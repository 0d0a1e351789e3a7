// The score routine as autograd functions that differ only in where keys and
// values lie.
#pragma once

#include "laga/attention/inner/inner.h"

#include <ATen/core/Tensor.h>

namespace laga {

/// Taken as functions of the scores and of lse side by side,
/// out = exp(scores - lse) v, the gradient of lse is -rowsum(out d_out) =
/// -delta. So whoever has `out` anyway can compute it and hand it back through
/// lse.
struct Attended {
  at::Tensor out; // [S, b, h, w_v]
  at::Tensor lse; // [S, b, h] where options.delta_given, else undefined
};

/// q [S, b, h, nope + r], kv [S, b, h, nope + v] (per head k_nope, then v, as
/// kv_b's GEMM writes them), k_pe [S, b, h | 1, r]. out [S, b, h, v].
Attended head_attention(
    const at::Tensor& q,
    const at::Tensor& kv,
    const at::Tensor& k_pe,
    const InnerAttention& inner,
    const AttentionOptions& options);

/// q_latent [S, b, h, c], q_pe [S, b, h, r], latent [S, b, c + r] (keys are all
/// of it, values its first c columns). out [S, b, h, c].
Attended latent_attention(
    const at::Tensor& q_latent,
    const at::Tensor& q_pe,
    const at::Tensor& latent,
    const InnerAttention& inner,
    const AttentionOptions& options);

/// For an inner attention that streams. q [S, b, h, nope + r], latent
/// [S, b, c + r], kv_b [h (nope + v), c] of the same heads. out [S, b, h, v].
Attended streamed_attention(
    const at::Tensor& q,
    const at::Tensor& latent,
    const at::Tensor& kv_b,
    const InnerAttention& inner,
    const AttentionOptions& options);

} // namespace laga
