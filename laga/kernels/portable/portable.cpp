// Any machine: the compiler's vectors of eight floats. On x86-64 this file is
// compiled for AVX2 with FMA (x86-64-v3), elsewhere for what the compiler's
// defaults have. bf16 is widened on the way in, so its products are fp32.
#include "laga/kernels/blocked/table.h"
#include "laga/kernels/tables.h"

namespace laga::kernels {

namespace {

struct Machine : blocked::Vectors<8> {
  using Operand = float;
  static constexpr int kPair = 1;
  // 12 sums, 2 registers of B and one of A: 15 of AVX2's 16.
  static constexpr int kTileRows = 6;
  static constexpr int kTileColumns = 2;

  static Real multiply_add(Real sum, blocked::Word factor, Real row) {
    return sum + __builtin_bit_cast(float, factor) * row;
  }
  static void store_operands(blocked::Word* to, Real x) {
    store(to, x);
  }
};

constexpr Kernels<float> kFp32 =
    blocked::Table<Machine, float>::row("portable");
constexpr Kernels<Bf16> kBf16 = blocked::Table<Machine, Bf16>::row("portable");

} // namespace

const Kernels<float>* portable_fp32() {
  return &kFp32;
}
const Kernels<Bf16>* portable_bf16() {
  return &kBf16;
}

} // namespace laga::kernels
