// The score routine as two autograd functions that differ only in where keys
// and values lie.
#pragma once

#include "laga/attention/inner/inner.h"

#include <ATen/core/Tensor.h>

namespace laga {

/// q [S, b, h, nope + r], kv [S, b, h, nope + v] (per head k_nope, then v, as
/// kv_b's GEMM writes them), k_pe [S, b, h | 1, r]. Returns [S, b, h, v].
at::Tensor head_attention(
    const at::Tensor& q,
    const at::Tensor& kv,
    const at::Tensor& k_pe,
    const InnerAttention& inner,
    const AttentionOptions& options);

/// q_latent [S, b, h, c], q_pe [S, b, h, r], latent [S, b, c + r] (keys are all
/// of it, values its first c columns). Returns [S, b, h, c].
at::Tensor latent_attention(
    const at::Tensor& q_latent,
    const at::Tensor& q_pe,
    const at::Tensor& latent,
    const InnerAttention& inner,
    const AttentionOptions& options);

} // namespace laga
