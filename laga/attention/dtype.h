// The project's dtypes as torch's.
#pragma once

#include "laga/core/dtype.h"

#include <ATen/core/Tensor.h>

namespace laga {

at::ScalarType torch_dtype(Dtype dtype);

/// Throws InvalidArgument for a torch dtype the project does not compute in.
Dtype dtype_of(const at::Tensor& tensor);

/// What sums and norms are computed in: fp32 for bf16 and fp32, fp64 for fp64.
at::ScalarType accumulator_of(at::ScalarType dtype);

} // namespace laga
