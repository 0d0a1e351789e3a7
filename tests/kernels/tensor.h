// What the tests compute with: dense tensors in fp64, whatever the kernels'
// number type is.
#pragma once

#include "laga/core/bf16.h"

#include <map>
#include <string>
#include <vector>

namespace laga::kernels::test {

/// [tokens, batch, heads, width]; heads 1: shared by all.
struct Tensor {
  int64_t tokens = 0, batch = 0, heads = 0, width = 0;
  std::vector<double> values = {};

  Tensor() = default;
  Tensor(int64_t t, int64_t b, int64_t h, int64_t w)
      : tokens(t),
        batch(b),
        heads(h),
        width(w),
        values(static_cast<size_t>(t * b * h * w)) {}

  int64_t row_begin(int64_t t, int64_t b, int64_t h) const {
    return ((t * batch + b) * heads + (heads == 1 ? 0 : h)) * width;
  }
  double* row(int64_t t, int64_t b, int64_t h) {
    return values.data() + row_begin(t, b, h);
  }
  const double* row(int64_t t, int64_t b, int64_t h) const {
    return values.data() + row_begin(t, b, h);
  }
};

/// By name: "out", "lse", "d_q_nope", ...
using Results = std::map<std::string, Tensor>;

/// The number of T that x becomes, in T.
template <class T>
T to_number(double x) {
  T number;
  narrow(static_cast<Accumulator<T>>(x), number);
  return number;
}

/// The same in fp64 again.
template <class T>
double rounded_to(double x) {
  return widen(to_number<T>(x));
}

/// Distance from 1 to the next number of T.
template <class T>
constexpr double kEpsilon = 0x1p-52;
template <>
inline constexpr double kEpsilon<float> = 0x1p-23;
template <>
inline constexpr double kEpsilon<Bf16> = 0x1p-7;

} // namespace laga::kernels::test
