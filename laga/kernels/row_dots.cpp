#include "laga/core/check.h"
#include "laga/kernels/attention.h"

#include <array>

namespace laga::kernels {

namespace {

// Eight sums side by side: as many as a vector has, and g++ may not reorder one
// sum by itself.
template <class T>
Accumulator<T> dot(const T* a, const T* b, int64_t width) {
  constexpr int64_t kSums = 8;
  std::array<Accumulator<T>, kSums> sums{};
  int64_t i = 0;
  for (; i + kSums <= width; i += kSums) {
    for (int64_t n = 0; n < kSums; ++n) {
      sums[static_cast<size_t>(n)] += widen(a[i + n]) * widen(b[i + n]);
    }
  }
  for (; i < width; ++i)
    sums[static_cast<size_t>(i % kSums)] += widen(a[i]) * widen(b[i]);
  Accumulator<T> total = 0;
  for (const Accumulator<T> sum : sums)
    total += sum;
  return total;
}

} // namespace

template <class T>
void row_dots(
    const View<const T>& out,
    const View<const T>& d_out,
    const View<Accumulator<T>>& delta,
    int64_t tokens,
    int64_t batch,
    int64_t heads,
    int64_t width) {
  LAGA_CHECK_GE(tokens, 0, "b ", batch, ", h ", heads, ", width ", width);
  LAGA_CHECK_GE(batch, 1, "s ", tokens, ", h ", heads, ", width ", width);
  LAGA_CHECK_GE(heads, 1, "s ", tokens, ", b ", batch, ", width ", width);
  LAGA_CHECK_GE(width, 1, "s ", tokens, ", b ", batch, ", h ", heads);
  if (tokens == 0) return; // what is empty may be null
  LAGA_CHECK(out.data != nullptr, "s ", tokens);
  LAGA_CHECK(d_out.data != nullptr, "s ", tokens);
  LAGA_CHECK(delta.data != nullptr, "s ", tokens);
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t b = 0; b < batch; ++b) {
      for (int64_t h = 0; h < heads; ++h) {
        *delta.at(t, b, h) = dot(out.at(t, b, h), d_out.at(t, b, h), width);
      }
    }
  }
}

template void row_dots<Bf16>(
    const View<const Bf16>&,
    const View<const Bf16>&,
    const View<float>&,
    int64_t,
    int64_t,
    int64_t,
    int64_t);
template void row_dots<float>(
    const View<const float>&,
    const View<const float>&,
    const View<float>&,
    int64_t,
    int64_t,
    int64_t,
    int64_t);
template void row_dots<double>(
    const View<const double>&,
    const View<const double>&,
    const View<double>&,
    int64_t,
    int64_t,
    int64_t,
    int64_t);

} // namespace laga::kernels
