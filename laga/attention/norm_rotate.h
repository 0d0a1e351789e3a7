// The norm of a latent and the rotation of the columns that ride beside it.
#pragma once

#include "laga/core/config.h"

#include <ATen/core/Tensor.h>

namespace laga {

struct NormRotate {
  double eps;
  RopeLayout layout = RopeLayout::kNone;
  at::Tensor rotation{}; // [s, 1 or b, 1, r / 2] complex, or undefined
};

/// x [s, b, c + r], weight [c]. Returns [s, b, c + r]: the first c columns
/// RMS-normed (x / sqrt(mean(x^2) + eps) * weight, arXiv 1910.07467, in the
/// accumulator's precision, rounded once), the others rotated. r may be 0.
at::Tensor norm_rotate(
    const at::Tensor& x, const at::Tensor& weight, const NormRotate& options);

} // namespace laga
