// The two halves of kv_b folded into the queries and the output (the paper's
// B2, DeepSeek-V2's "absorption"): what lets scores be taken in latent space.
#pragma once

#include <ATen/core/Tensor.h>

namespace laga {

/// Which rows of a head's kv_b [nope + v, c].
enum class KvHalf {
  kKeys,   // y = x W_K: [.., nope] -> [.., c]
  kValues, // y = x W_V^T: [.., c] -> [.., v]
};

/// x [S, b, h, nope | c] (any strides but unit in the last), kv_b
/// [h (nope + v), c] of the same heads. Returns [S, b, h, c | v].
at::Tensor through_kv_half(
    const at::Tensor& x,
    const at::Tensor& kv_b,
    int64_t qk_nope_head_dim,
    KvHalf half);

} // namespace laga
