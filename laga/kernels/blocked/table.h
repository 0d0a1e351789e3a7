// A machine's row of the kernels' table.
#pragma once

#include "laga/kernels/attention.h"
#include "laga/kernels/blocked/backward.h"
#include "laga/kernels/blocked/forward.h"
#include "laga/kernels/blocked/matmul.h"

namespace laga::kernels::blocked {

template <class Machine, class T>
struct Table {
  static int64_t forward_scratch_bytes(const ForwardParams<T>& params) {
    return ForwardHead<Machine, T>(params, nullptr).scratch_bytes();
  }
  static int64_t backward_scratch_bytes(const BackwardParams<T>& params) {
    return BackwardHead<Machine, T>(params, nullptr).scratch_bytes();
  }
  static void forward_head(
      const ForwardParams<T>& params, int64_t head, void* scratch) {
    ForwardHead<Machine, T>(params, scratch).run(head);
  }
  static int64_t backward_steps(const BackwardParams<T>& params) {
    return BackwardHead<Machine, T>(params, nullptr).steps();
  }
  static void backward_head(
      const BackwardParams<T>& params,
      int64_t head,
      const typename Kernels<T>::Turns& turns,
      void* scratch) {
    BackwardHead<Machine, T>(params, scratch).run(head, turns);
  }

  static int64_t matmul_scratch_bytes() {
    return MatmulTile<Machine, T>(nullptr).scratch_bytes();
  }
  static void matmul_tile(
      const MatmulParams<T>& params, int64_t tile, void* scratch) {
    MatmulTile<Machine, T>(scratch).run(params, tile);
  }

  // A tile of sums that never leaves the registers.
  static double multiply_add_loop(int64_t iterations) {
    using Real = typename Machine::Real;
    constexpr int kRows = Machine::kTileRows;
    constexpr int kColumns = Machine::kTileColumns;
    // Volatile: the compiler cannot know that all it adds is 0.
    volatile float nothing = 0;
    const Real row = Machine::all(nothing);
    const auto factor = __builtin_bit_cast(Word, static_cast<float>(nothing));
    Real sum[kRows][kColumns] = {};
    for (int64_t i = 0; i < iterations; ++i) {
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
        for (int c = 0; c < kColumns; ++c)
          sum[r][c] = Machine::multiply_add(sum[r][c], factor, row);
      }
    }
    Real total{};
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
      for (int c = 0; c < kColumns; ++c)
        total += sum[r][c];
    }
    nothing = Machine::sum(total);
    return 2.0 * Machine::kPair * Machine::kLanes * kRows * kColumns *
           static_cast<double>(iterations);
  }

  static constexpr Kernels<T> row(std::string_view isa) {
    Kernels<T> kernels{
        isa,
        forward_scratch_bytes,
        backward_scratch_bytes,
        forward_head,
        backward_steps,
        backward_head,
        nullptr,
        nullptr,
        multiply_add_loop,
        2.0 * Machine::kPair * Machine::kLanes};
    // fp32 and what has bf16 instructions is fast enough elsewhere.
    if constexpr (Machine::kPair == 1 && sizeof(T) == 2) {
      kernels.matmul_scratch_bytes = matmul_scratch_bytes;
      kernels.matmul_tile = matmul_tile;
    }
    return kernels;
  }
};

} // namespace laga::kernels::blocked
