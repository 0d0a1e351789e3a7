// Matrix products of the layer as autograd functions. They differ from torch's
// in where their results lie: rows ordered by destination, so that sending
// needs no pack and what returns needs exactly one unpack. Weight gradients are
// charged apart from activations.
#pragma once

#include "laga/core/config.h"

#include <ATen/core/Tensor.h>

namespace laga {

/// x [T, in] (rows may be strided), weight [out, in], bias [out] or undefined.
/// Returns [T, out].
at::Tensor linear(
    const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

/// Rows row_begin ... of a weight [rows, in] as a view whose gradient is zero
/// elsewhere. Returns [row_count, in].
at::Tensor own_rows(
    const at::Tensor& weight, int64_t row_begin, int64_t row_count);

/// The heads that a projection makes, and what RoPE does to each head's last
/// columns.
struct HeadProjection {
  int64_t local_seq; // s
  int64_t batch;     // b
  int64_t ranks;     // P
  int64_t heads;     // n, of all ranks
  RopeLayout layout = RopeLayout::kNone;
  int64_t rope_dim = 0;  // the last columns of each head that are rotated
  at::Tensor rotation{}; // [s, 1 or b, 1, rope_dim / 2] complex, or undefined
};

/// x [s b, in], weight [n width, in]. Returns [P, s, b, n / P, width]: the
/// heads of rank p at p, rotated. One GEMM a destination, straight into the
/// buffer. The backward unpacks once and runs one GEMM: P accumulating ones in
/// bf16 would multiply the error.
at::Tensor project_to_peers(
    const at::Tensor& x, const at::Tensor& weight, const HeadProjection& heads);

/// The mirror image. returned [P, s, b, n / P, width]: the heads of rank p for
/// the local tokens. weight [d, n width]. Returns [s b, d] from one unpack and
/// one GEMM; its backward writes P GEMMs straight into the send buffer.
/// lse [P, s, b, n / P] or undefined: no number of it is read, but its gradient
/// is -rowsum(returned d_returned) (see Attended), formed here, where the
/// result is kept for the weight's gradient anyway.
at::Tensor project_from_peers(
    const at::Tensor& returned,
    const at::Tensor& weight,
    const at::Tensor& bias,
    const at::Tensor& lse = {});

/// x [s, b, r] (any strides). Returns [P, s, b, heads_each, r]: x for every
/// head of every rank. The backward sums over heads in their order.
at::Tensor repeat_for_peers(
    const at::Tensor& x, int64_t ranks, int64_t heads_each);

} // namespace laga
