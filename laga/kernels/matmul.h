// A matrix product for bf16 on processors without instructions for it. ATen's
// own falls to a loop there: measured 0.8 to 15 GF/s a core on a Zen 3, where
// the same product in fp32 has 47.
#pragma once

#include <cstdint>

namespace laga::kernels {

/// Rows of c and columns of c that one call of matmul_tile computes.
inline constexpr int64_t kMatmulTile = 256;

/// c [m, n] = a [m, k] b [k, n], summed in fp32 in k's order, rounded once. So
/// a slice of rows or columns has the bits that it has in the whole.
template <class T>
struct MatmulParams {
  int64_t m = 0, n = 0, k = 0;
  // Elements to the next row and the next column; one of the two is 1.
  const T* a = nullptr;
  int64_t a_row = 0, a_column = 1;
  const T* b = nullptr;
  int64_t b_row = 0, b_column = 1;
  T* c = nullptr;
  int64_t c_row = 0; // columns lie side by side

  int64_t column_tiles() const {
    return (n + kMatmulTile - 1) / kMatmulTile;
  }
  int64_t tiles() const {
    return (m + kMatmulTile - 1) / kMatmulTile * column_tiles();
  }
};

} // namespace laga::kernels
