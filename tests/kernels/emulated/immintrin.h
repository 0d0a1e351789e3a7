// AVX-512 for machines without it: SIMDe's emulation under the native names.
// What our kernels use beyond Debian 12's SIMDe (0.7.4) is written out below.
#pragma once

#include_next <immintrin.h>
#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx512.h>

#include <bit>
#include <cstdint>
#include <cstring>

/// fp32 to bf16, to the nearest, ties to even; NaN stays NaN. The instruction
/// takes denormals for 0, which differs by less than 2^-126.
#define _mm512_cvtneps_pbh laga_mm512_cvtneps_pbh
inline __m256i _mm512_cvtneps_pbh(simde__m512 x) {
  float from[16];
  uint16_t to[16];
  std::memcpy(from, &x, sizeof(from));
  for (int i = 0; i < 16; ++i) {
    const auto bits = std::bit_cast<uint32_t>(from[i]);
    const uint32_t upper = bits >> 16;
    to[i] = static_cast<uint16_t>(
        from[i] == from[i] ? (bits + 0x7fffu + (upper & 1u)) >> 16
                           : upper | 0x40u);
  }
  __m256i packed;
  std::memcpy(&packed, to, sizeof(to));
  return packed;
}

#undef _mm512_cvtepu16_epi32
#define _mm512_cvtepu16_epi32 laga_mm512_cvtepu16_epi32
inline simde__m512i _mm512_cvtepu16_epi32(__m256i x) {
  uint16_t from[16];
  uint32_t to[16];
  std::memcpy(from, &x, sizeof(from));
  for (int i = 0; i < 16; ++i)
    to[i] = from[i];
  simde__m512i wide;
  std::memcpy(&wide, to, sizeof(to));
  return wide;
}
