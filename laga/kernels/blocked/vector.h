// Vectors of fp32 lanes in the compiler's own vector types: the part of the
// kernels' arithmetic that every instruction set has. An instruction set adds
// what it does better (its machine.h).
//
// All of blocked/ is templates over a Machine of an unnamed namespace, so that
// nothing compiled for one instruction set can be linked into another's code.
// For the same reason nothing here calls inline functions of the library.
#pragma once

#include <cstdint>
#include <utility>

namespace laga::kernels::blocked {

/// 32 bits of an operand: one float or a pair of bf16. GEMMs count in words. A
/// struct, because a typedef would lose may_alias as a template's argument.
struct [[gnu::may_alias]] Word {
  uint32_t bits;
};

// A vector type cannot be unaligned and a template argument at once, hence the
// struct of names per width.
template <int kLanes>
struct VectorTypes;
template <>
struct VectorTypes<8> {
  using Real = float __attribute__((vector_size(32)));
  using Int = int32_t __attribute__((vector_size(32)));
  using Loose = float __attribute__((vector_size(32), aligned(4), may_alias));
};
template <>
struct VectorTypes<16> {
  using Real = float __attribute__((vector_size(64)));
  using Int = int32_t __attribute__((vector_size(64)));
  using Loose = float __attribute__((vector_size(64), aligned(4), may_alias));
};

template <int kLaneCount>
struct Vectors {
  static constexpr int kLanes = kLaneCount;
  using Real = typename VectorTypes<kLanes>::Real;
  using Int = typename VectorTypes<kLanes>::Int;
  using Loose = typename VectorTypes<kLanes>::Loose;

  static Real load(const void* from) {
    return *static_cast<const Loose*>(from);
  }
  static void store(void* to, Real x) {
    *static_cast<Loose*>(to) = x;
  }
  static Real all(float x) {
    return x - Real{};
  }
  static Real larger(Real a, Real b) {
    return a > b ? a : b;
  }
  static Int lane_numbers() {
    return lane_numbers(std::make_integer_sequence<int, kLanes>{});
  }
  /// x where from <= first + lane < to, else `otherwise`; never computed with
  /// x, so a NaN that is not selected does no harm.
  static Real select(
      Real x, Real otherwise, int32_t first, int32_t from, int32_t to) {
    const Int lane = lane_numbers() + first;
    return ((lane >= from) & (lane < to)) ? x : otherwise;
  }
  static float sum(Real x) {
    return fold(x, [](Real a, Real b) { return a + b; });
  }
  static float largest(Real x) {
    return fold(x, [](Real a, Real b) { return larger(a, b); });
  }

  /// 2^x for x <= 127, by 2^round(x) times a polynomial for the rest whose
  /// relative error is 2e-9 (minimax on [-1/2, 1/2]). Below 2^-126: 0.
  static Real exp2(Real x) {
    const Real bounded = x < -127.0f ? all(-127.0f) : x; // keeps NaN
    // Adding 1.5 2^23 leaves the integer in the mantissa's low bits.
    const Real shifted = bounded + 12582912.0f;
    const Real rest = bounded - (shifted - 12582912.0f);
    Real y = rest * 1.53458125e-4f + 1.33999312e-3f;
    y = y * rest + 9.61848896e-3f;
    y = y * rest + 5.55032878e-2f;
    y = y * rest + 2.40226469e-1f;
    y = y * rest + 6.93147206e-1f;
    y = y * rest + 1.0f;
    // Exponent -127 gives the bits of 0.
    const Int power = ((Int)shifted + (127 - 0x4b400000)) << 23;
    return y * (Real)power;
  }

  /// A kLanes x kLanes block of 32-bit words: rows[i] lane j <-> rows[j] lane
  /// i, in log2(kLanes) rounds of exchanging sub-blocks.
  static void transpose(Real (&rows)[kLanes]) {
    exchange<1>(rows);
    exchange<2>(rows);
    exchange<4>(rows);
    if constexpr (kLanes > 8) exchange<8>(rows);
  }

 private:
  template <int... kLane>
  static Int lane_numbers(std::integer_sequence<int, kLane...>) {
    return Int{kLane...};
  }
  // Lane l of the result is lane l + kStep of x, in a circle.
  template <int kStep, int... kLane>
  static Real turned(Real x, std::integer_sequence<int, kLane...>) {
    return __builtin_shufflevector(x, x, ((kLane + kStep) % kLanes)...);
  }
  template <int kHalf = kLanes / 2, class Operation>
  static float fold(Real x, Operation operation) {
    x = operation(
        x, turned<kHalf>(x, std::make_integer_sequence<int, kLanes>{}));
    if constexpr (kHalf > 1) {
      return fold<kHalf / 2>(x, operation);
    } else {
      return x[0];
    }
  }
  template <int kStep, int... kLane>
  static void exchange_pair(
      Real& a, Real& b, std::integer_sequence<int, kLane...>) {
    const Real low = __builtin_shufflevector(
        a, b, ((kLane & kStep) ? kLane - kStep + kLanes : kLane)...);
    b = __builtin_shufflevector(
        a, b, ((kLane & kStep) ? kLane + kLanes : kLane + kStep)...);
    a = low;
  }
  template <int kStep>
  static void exchange(Real (&rows)[kLanes]) {
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) {
      if ((i & kStep) == 0) {
        exchange_pair<kStep>(
            rows[i],
            rows[i + kStep],
            std::make_integer_sequence<int, kLanes>{});
      }
    }
  }
};

} // namespace laga::kernels::blocked
