#include "laga/attention/dtype.h"

#include "laga/core/check.h"

namespace laga {

at::ScalarType torch_dtype(Dtype dtype) {
  return dtype == Dtype::kBf16   ? at::kBFloat16
         : dtype == Dtype::kFp32 ? at::kFloat
                                 : at::kDouble;
}

Dtype dtype_of(const at::Tensor& tensor) {
  for (Dtype dtype : {Dtype::kBf16, Dtype::kFp32, Dtype::kFp64}) {
    if (tensor.scalar_type() == torch_dtype(dtype)) return dtype;
  }
  throw InvalidArgument(detail::concat(
      "[dtype_of] no attention in ",
      c10::toString(tensor.scalar_type()),
      ". Known: bf16, fp32, fp64"));
}

at::ScalarType accumulator_of(at::ScalarType dtype) {
  return dtype == at::kDouble ? at::kDouble : at::kFloat;
}

} // namespace laga
