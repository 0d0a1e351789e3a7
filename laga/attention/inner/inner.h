// The attention inside: scores, softmax, weighted sum. Implementations are rows
// of a table behind one routine that serves head space and latent space alike;
// they know nothing of forms, ranks or autograd.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace laga {

/// Any strides but unit in the last dimension. h_kv is h, or 1 where all heads
/// share (k_pe in the compact and latent paths; everything in latent space).
struct AttentionTensors {
  at::Tensor q_nope; // [S, b, h, w]: w is nope, or c in latent space
  at::Tensor q_pe;   // [S, b, h, r]
  at::Tensor k_nope; // [S, b, h_kv, w]
  at::Tensor k_pe;   // [S, b, h_kv, r]
  at::Tensor v;      // [S, b, h_kv, w_v]
};

struct AttentionOptions {
  double softmax_scale;
  bool causal;
};

/// Gradients to be written, shaped like their tensors. Where k_nope and v are
/// the same memory, so are d_k_nope and d_v, and both parts are summed there.
using AttentionGradients = AttentionTensors;

struct InnerAttention {
  std::string_view name;

  /// Writes out [S, b, h, w_v]; returns what its backward needs besides the
  /// inputs.
  std::vector<at::Tensor> (*forward)(
      const AttentionTensors& in,
      const AttentionOptions& options,
      const at::Tensor& out);

  /// d_out [S, b, h, w_v]. Gradients shared by heads are summed in the heads'
  /// order (HeadSum). `saved` is the backward's to consume; `make_gradients`
  /// allocates what is to be written, so call it once scratch is gone.
  void (*backward)(
      const AttentionTensors& in,
      const AttentionOptions& options,
      std::vector<at::Tensor> saved,
      const at::Tensor& d_out,
      const std::function<AttentionGradients()>& make_gradients);
};

/// Scores and probabilities materialised for all heads, as in the paper's
/// eager measurements: three [b, h, S, S] buffers at the peak.
extern const InnerAttention kEagerAttention;

/// Throws InvalidArgument listing the known names.
const InnerAttention& find_inner(std::string_view name);

/// Names of all, in the order of the table.
std::vector<std::string> inner_names();

} // namespace laga
