// What AVX-512F does better than the compiler's vectors.
#pragma once

#include "laga/kernels/blocked/vector.h"

#include <immintrin.h>

namespace laga::kernels {

namespace {

struct Avx512 : blocked::Vectors<16> {
  /// 2^x, as in Vectors, with the instructions made for it: round to a whole
  /// number, scale by a power of two.
  static Real exp2(Real x) {
    return scaled(x, [](__m512 rest) {
      __m512 y = _mm512_set1_ps(1.53458125e-4f);
      y = _mm512_fmadd_ps(y, rest, _mm512_set1_ps(1.33999312e-3f));
      y = _mm512_fmadd_ps(y, rest, _mm512_set1_ps(9.61848896e-3f));
      y = _mm512_fmadd_ps(y, rest, _mm512_set1_ps(5.55032878e-2f));
      y = _mm512_fmadd_ps(y, rest, _mm512_set1_ps(2.40226469e-1f));
      y = _mm512_fmadd_ps(y, rest, _mm512_set1_ps(6.93147206e-1f));
      return _mm512_fmadd_ps(y, rest, _mm512_set1_ps(1.0f));
    });
  }

 protected:
  /// polynomial(x - round(x)) 2^round(x); NaN stays NaN, far below 2^-126 is 0.
  template <class Polynomial>
  static Real scaled(Real x, Polynomial polynomial) {
    // The second operand is what comes out where one is NaN.
    const __m512 bounded = _mm512_max_ps(_mm512_set1_ps(-150.0f), (__m512)x);
    const __m512 whole = _mm512_roundscale_ps(
        bounded, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    return (Real)_mm512_scalef_ps(
        polynomial(_mm512_sub_ps(bounded, whole)), whole);
  }
};

} // namespace

} // namespace laga::kernels
