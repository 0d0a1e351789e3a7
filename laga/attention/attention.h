// Multi-head latent attention over a sequence split across ranks.
#pragma once

#include "laga/attention/context.h"
#include "laga/attention/weights.h"

#include <ATen/core/Tensor.h>

namespace laga {

/// The paper's Algorithm 1 for every form. hidden [s, b, d]: this rank's
/// tokens, of shape.dtype. Returns [s, b, d]. The backward leaves partial
/// weight gradients (sum_weight_gradients). Throws InvalidArgument before
/// anything is sent, CommError where a peer fails.
at::Tensor mla_attention(
    const at::Tensor& hidden, const Weights& weights, const Context& context);

} // namespace laga
