// The one way in which a gradient shared by heads is summed.
#pragma once

#include "laga/attention/dtype.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>

namespace laga {

/// Adds heads one by one in the order of add()'s calls, which is the heads'
/// order everywhere, with fp32 accumulators for bf16; rounded once. Explicit
/// sums its copies of k_pe with it, LAGA the shared k_pe: the same bits.
class HeadSum {
 public:
  HeadSum(at::IntArrayRef sizes, const at::TensorOptions& options)
      : dtype_(options.dtype().toScalarType()),
        sum_(at::zeros(sizes, options.dtype(accumulator_of(dtype_)))) {}

  void add(const at::Tensor& head) {
    sum_.add_(head);
  }
  /// Adds to columns begin ... begin + head's width only.
  void add_columns(int64_t begin, const at::Tensor& head) {
    sum_.narrow(-1, begin, head.size(-1)).add_(head);
  }
  at::Tensor rounded() const {
    return sum_.to(dtype_);
  }

 private:
  at::ScalarType dtype_;
  at::Tensor sum_;
};

} // namespace laga
