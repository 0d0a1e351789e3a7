// ATen's fused attention on one width for all: its op for the CPU, called by
// name, and what ATen picks on any other device.
#pragma once

#include "laga/attention/inner/inner.h"

#include <ATen/core/Tensor.h>

#include <tuple>

namespace laga {

struct OpInputs {
  at::Tensor q, k, v; // each [b, h, S, W]
};

struct AtenOp {
  /// Result [b, h, S, W], and the log-sum-exp [b, h, S] where the backward
  /// wants it. Throws InvalidArgument where ATen would take its math path, with
  /// S x S scores.
  std::tuple<at::Tensor, at::Tensor> (*forward)(
      const OpInputs& in, const AttentionOptions& options);

  /// d_q, d_k and d_v of every head, each [b, h, S, W].
  std::tuple<at::Tensor, at::Tensor, at::Tensor> (*backward)(
      const OpInputs& in,
      const AttentionOptions& options,
      const at::Tensor& out,
      const at::Tensor& lse,
      const at::Tensor& d_out);
};

/// Flash attention for the CPU.
extern const AtenOp kCpuOp;

/// scaled_dot_product_attention, which has a fused op on most devices. Their
/// backwards take different things, so it runs its forward once more, recorded,
/// and keeps nothing. It runs on the CPU too, where it is tested.
extern const AtenOp kAnyDeviceOp;

} // namespace laga
