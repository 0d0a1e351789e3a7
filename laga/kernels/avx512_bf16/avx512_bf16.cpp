// AVX-512 with its bf16 products: two bf16 pairs a lane and instruction, added
// in fp32.
#include "laga/kernels/avx512/machine.h"
#include "laga/kernels/blocked/table.h"
#include "laga/kernels/tables.h"

namespace laga::kernels {

namespace {

struct Machine : Avx512 {
  using Operand = uint16_t;
  static constexpr int kPair = 2;
  // 16 sums; each load of B serves four rows, each word of A four registers.
  // Measured 88 to 99 % of peak.
  static constexpr int kTileRows = 4;
  static constexpr int kTileColumns = 4;

  static Real multiply_add(Real sum, blocked::Word factor, Real row) {
    return (Real)_mm512_dpbf16_ps(
        (__m512)sum,
        (__m512bh)_mm512_set1_epi32(static_cast<int>(factor.bits)),
        (__m512bh)_mm512_castps_si512((__m512)row));
  }
  /// 2^x with relative error 8e-8: the weights are rounded to 2^-9, but their
  /// sum is the log-sum-exp, in fp32.
  static Real exp2(Real x) {
    return scaled(x, [](__m512 rest) {
      __m512 y = _mm512_set1_ps(1.32764720e-3f);
      y = _mm512_fmadd_ps(y, rest, _mm512_set1_ps(9.67554133e-3f));
      y = _mm512_fmadd_ps(y, rest, _mm512_set1_ps(5.55071327e-2f));
      y = _mm512_fmadd_ps(y, rest, _mm512_set1_ps(2.40221197e-1f));
      y = _mm512_fmadd_ps(y, rest, _mm512_set1_ps(6.93146967e-1f));
      return _mm512_fmadd_ps(y, rest, _mm512_set1_ps(1.00000007f));
    });
  }
  static void store_operands(blocked::Word* to, Real x) {
    _mm256_storeu_si256(
        reinterpret_cast<__m256i*>(to), (__m256i)_mm512_cvtneps_pbh((__m512)x));
  }
  /// Lane by lane a bf16 of each, `low` in the lower half.
  static void store_pairs(blocked::Word* to, Real low, Real high) {
    const __m512i l =
        _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh((__m512)low));
    const __m512i h =
        _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh((__m512)high));
    _mm512_storeu_si512(to, _mm512_or_si512(l, _mm512_slli_epi32(h, 16)));
  }
};

constexpr Kernels<Bf16> kBf16 =
    blocked::Table<Machine, Bf16>::row("avx512_bf16");

} // namespace

const Kernels<Bf16>* avx512_bf16() {
  return &kBf16;
}

} // namespace laga::kernels
