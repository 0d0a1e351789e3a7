// Rotary position embedding as a complex multiplication.
#pragma once

#include "laga/core/config.h"

#include <ATen/core/Tensor.h>

namespace laga {

/// amplitude * (cos + i sin) of each position and pair. positions [s] or
/// [s, b], int64. Returns [s, 1 or b, 1, r / 2], complex of `accumulator`'s
/// precision, computed in fp64; undefined for RopeLayout::kNone.
at::Tensor make_rotation(
    const MlaConfig& config,
    const at::Tensor& positions,
    at::ScalarType accumulator);

/// Rotates x [s, b, h, r] (any strides) in place by `rotation`, or by its
/// transpose (the conjugate), which is what gradients need. Nothing where
/// `rotation` is undefined.
void rotate_(
    const at::Tensor& x,
    const at::Tensor& rotation,
    RopeLayout layout,
    bool transposed = false);

} // namespace laga
