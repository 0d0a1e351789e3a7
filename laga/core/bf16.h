// bfloat16 as numbers, for code that knows no torch.
#pragma once

#include <cstdint>
#include <cstring>

namespace laga {

/// The upper half of an IEEE single.
struct Bf16 {
  uint16_t bits;
};

inline float widen(Bf16 x) {
  const uint32_t bits = static_cast<uint32_t>(x.bits) << 16;
  float wide;
  std::memcpy(&wide, &bits, sizeof(wide));
  return wide;
}
inline float widen(float x) {
  return x;
}
inline double widen(double x) {
  return x;
}

/// What sums are held in: fp32 for bf16 and fp32, fp64 for fp64.
template <typename Number>
using Accumulator = decltype(widen(Number{}));

/// To the nearest, ties to even, as the hardware does; NaN stays NaN.
inline void narrow(float x, Bf16& to) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof(bits));
  const uint32_t upper = bits >> 16;
  const uint32_t rounded = (bits + 0x7fffu + (upper & 1u)) >> 16;
  to.bits = static_cast<uint16_t>(x == x ? rounded : upper | 0x40u);
}
inline void narrow(float x, float& to) {
  to = x;
}
inline void narrow(double x, double& to) {
  to = x;
}

} // namespace laga
