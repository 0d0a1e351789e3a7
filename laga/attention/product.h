// The products of the layer's projections: ATen's, but for bf16 on processors
// without instructions for it, where ATen falls to a loop and our kernels have
// a fast one.
#pragma once

#include <ATen/core/Tensor.h>

namespace laga {

/// a [m, k] b [k, n], any strides.
at::Tensor product(const at::Tensor& a, const at::Tensor& b);

/// The same into out [m, n].
void product_into(at::Tensor& out, const at::Tensor& a, const at::Tensor& b);

/// bias [n] + a b.
at::Tensor product_plus(
    const at::Tensor& bias, const at::Tensor& a, const at::Tensor& b);

} // namespace laga
