// The attention inside: scores, softmax, weighted sum. Implementations are rows
// of a table behind one routine that serves head space and latent space alike;
// they know nothing of forms, ranks or autograd.
#pragma once

#include "laga/core/form.h"

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
  /// The backward is given delta = rowsum(out d_out) instead of computing it
  /// from `out`, which then need not be kept.
  bool delta_given = false;
};

/// Gradients to be written, shaped like their tensors. Where k_nope and v are
/// the same memory, so are d_k_nope and d_v, and both parts are summed there.
using AttentionGradients = AttentionTensors;

/// Keys and values as what they are made of: head h's k_nope beside its v is
/// latent kv_b_h^T.
struct LatentTensors {
  at::Tensor q_nope; // [S, b, h, nope]
  at::Tensor q_pe;   // [S, b, h, r]
  at::Tensor latent; // [S, b, c + r]: the latent beside k_pe
  at::Tensor kv_b;   // [h (nope + v), c]
};
using LatentGradients = LatentTensors;

struct InnerAttention {
  std::string_view name;

  /// Writes out [S, b, h, w_v]; returns what its backward needs besides the
  /// inputs, `out` itself if that is among it. Null where the row streams.
  std::vector<at::Tensor> (*forward)(
      const AttentionTensors& in,
      const AttentionOptions& options,
      const at::Tensor& out) = nullptr;

  /// d_out [S, b, h, w_v]. Gradients shared by heads are summed in the heads'
  /// order (HeadSum). `saved` is the backward's to consume; `make_gradients`
  /// allocates what is to be written, so call it once scratch is gone.
  void (*backward)(
      const AttentionTensors& in,
      const AttentionOptions& options,
      std::vector<at::Tensor> saved,
      const at::Tensor& d_out,
      const std::function<AttentionGradients()>& make_gradients) = nullptr;

  /// In place of both, for rows that stream: keys and values of one head or a
  /// few are made, used and dropped, and made again in the backward.
  std::vector<at::Tensor> (*forward_latent)(
      const LatentTensors& in,
      const AttentionOptions& options,
      const at::Tensor& out) = nullptr;
  void (*backward_latent)(
      const LatentTensors& in,
      const AttentionOptions& options,
      std::vector<at::Tensor> saved,
      const at::Tensor& d_out,
      const std::function<LatentGradients()>& make_gradients) = nullptr;

  /// Can be given delta. Its forward then returns the log-sum-exp [S, b, h]
  /// alone, and the backward finds it and delta in `saved`.
  bool takes_delta = false;

  /// Buffers of [b, h, S, S] numbers alive at its peak.
  int64_t score_buffers = 0;

  bool cpu_only = false;

  /// What takes its place on other devices, with the same tensors saved; null:
  /// nothing does.
  const InnerAttention* elsewhere = nullptr;
};

/// Scores and probabilities materialised for all heads, as in the paper's
/// eager measurements: three [b, h, S, S] buffers at the peak.
extern const InnerAttention kEagerAttention;

/// ATen's fused attention, with v padded to the width of the keys.
extern const InnerAttention kSdpaAttention;

/// Our kernels.
extern const InnerAttention kFusedAttention;

/// Our kernels, fed from the latent one head at a time.
extern const InnerAttention kStreamAttention;

/// The same loop on ATen: a head at a time through kSdpaAttention. Takes
/// kStreamAttention's place on a device that our kernels do not know.
extern const InnerAttention kStreamSdpaAttention;

/// `inner`, or what takes its place on `device`. Throws InvalidArgument naming
/// what runs there if nothing does.
const InnerAttention& on_device(
    const InnerAttention& inner, const at::Device& device);

/// Throws InvalidArgument listing the known names.
const InnerAttention& find_inner(std::string_view name);

/// The same, and it throws InvalidArgument listing those that `form` can use
/// where this one is not among them.
const InnerAttention& find_inner(std::string_view name, const Form& form);

/// Names of all, in the order of the table.
std::vector<std::string> inner_names();

/// Names of those that `form` can use, in the same order.
std::vector<std::string> inners_for(const Form& form);

/// The fastest with the least memory: "stream" where keys travel as the latent
/// and scores are taken in head space (LAGA), else "fused".
std::string_view default_inner(const Form& form);

} // namespace laga
