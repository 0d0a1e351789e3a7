// Moving numbers into the two layouts that a GEMM reads: rows of words (A), and
// words [k][n] (B), whose rows are interleaved in pairs where an operand is
// bf16.
#pragma once

#include "laga/core/bf16.h"
#include "laga/kernels/blocked/gemm.h"

namespace laga::kernels::blocked {

template <class Machine>
struct Pack {
  static constexpr int64_t kLanes = Machine::kLanes;
  static constexpr int64_t kPair = Machine::kPair;
  using Operand = typename Machine::Operand; // float, or a bf16's bits

  static float widen(float x) {
    return x;
  }
  static float widen(Bf16 x) {
    return __builtin_bit_cast(float, static_cast<uint32_t>(x.bits) << 16);
  }
  // To the nearest, ties to even; NaN stays NaN.
  static uint16_t bf16_bits(float x) {
    const auto bits = __builtin_bit_cast(uint32_t, x);
    const uint32_t upper = bits >> 16;
    const uint32_t rounded = (bits + 0x7fffu + (upper & 1u)) >> 16;
    return static_cast<uint16_t>(x == x ? rounded : upper | 0x40u);
  }
  static void narrow(float x, float& to) {
    to = x;
  }
  static void narrow(float x, Bf16& to) {
    to.bits = bf16_bits(x);
  }

  static Operand operand(Bf16 x) {
    if constexpr (kPair == 2) {
      return x.bits;
    } else {
      return widen(x);
    }
  }
  static Operand operand(float x) {
    static_assert(kPair == 1, "fp32 tensors need fp32 operands");
    return x;
  }

  /// One row of a tensor as operands.
  template <class T>
  static void row(const T* from, int64_t width, Word* to, int64_t offset) {
    auto* operands = reinterpret_cast<Operand*>(to) + offset;
    for (int64_t i = 0; i < width; ++i)
      operands[i] = operand(from[i]);
  }
  /// fp32 results, rounded to T, as operands.
  template <class T>
  static void rounded_row(
      const float* from, int64_t width, Word* to, int64_t offset) {
    auto* operands = reinterpret_cast<Operand*>(to) + offset;
    for (int64_t i = 0; i < width; ++i) {
      T rounded;
      narrow(from[i], rounded);
      operands[i] = operand(rounded);
    }
  }
  /// scale * from into a tensor's row.
  template <class T>
  static void result_row(const float* from, int64_t width, float scale, T* to) {
    for (int64_t i = 0; i < width; ++i)
      narrow(from[i] * scale, to[i]);
  }
  static void zero(Word* to, int64_t words) {
    for (int64_t i = 0; i < words; ++i)
      to[i].bits = 0;
  }
  static void zero(float* to, int64_t count) {
    for (int64_t i = 0; i < count; ++i)
      to[i] = 0;
  }

  /// from [rows, columns] words -> to [columns, rows]; both sizes multiples of
  /// kLanes.
  static void transpose(
      int64_t rows, int64_t columns, Rows<const Word> from, Rows<Word> to) {
    for (int64_t r = 0; r < rows; r += kLanes) {
      for (int64_t c = 0; c < columns; c += kLanes) {
        typename Machine::Real block[kLanes];
#pragma GCC unroll 16
        for (int i = 0; i < kLanes; ++i)
          block[i] = Machine::load(from.at(r + i, c));
        Machine::transpose(block);
#pragma GCC unroll 16
        for (int i = 0; i < kLanes; ++i)
          Machine::store(to.at(c + i, r), block[i]);
      }
    }
  }
  /// The same into panels: row r becomes column `column` + r.
  static void transpose(
      int64_t rows,
      int64_t columns,
      Rows<const Word> from,
      Panels<Machine> to,
      int64_t column) {
    constexpr int64_t kWidth = Panels<Machine>::kWidth;
    for (int64_t r = 0; r < rows; r += kWidth) {
      transpose(
          rows - r < kWidth ? rows - r : kWidth,
          columns,
          {from.at(r), from.row},
          {to.at(0, column + r), kWidth});
    }
  }

  /// Two rows of operands -> words that hold a column's numbers of both. A copy
  /// of the first where words are floats.
  static void interleave_row(
      const Word* low, const Word* high, int64_t columns, Word* to) {
    if constexpr (kPair == 1) {
      for (int64_t c = 0; c < columns; ++c)
        to[c] = low[c];
    } else {
      using Half = uint16_t __attribute__((may_alias));
      const auto* l = reinterpret_cast<const Half*>(low);
      const auto* h = reinterpret_cast<const Half*>(high);
      for (int64_t c = 0; c < columns; ++c)
        to[c].bits = l[c] | static_cast<uint32_t>(h[c]) << 16;
    }
  }
  /// from [rows, columns] operands -> to [rows / kPair, columns] words.
  static void interleave(
      int64_t rows, int64_t columns, Rows<const Word> from, Rows<Word> to) {
    for (int64_t r = 0; r < rows; r += kPair) {
      interleave_row(
          from.at(r), from.at(r + kPair - 1), columns, to.at(r / kPair));
    }
  }
  /// The same into panels, from row `k` on.
  static void interleave(
      int64_t rows,
      int64_t columns,
      Rows<const Word> from,
      Panels<Machine> to,
      int64_t k) {
    constexpr int64_t kWidth = Panels<Machine>::kWidth;
    for (int64_t c = 0; c < columns; c += kWidth) {
      for (int64_t r = 0; r < rows; r += kPair) {
        interleave_row(
            from.at(r, c / kPair),
            from.at(r + kPair - 1, c / kPair),
            columns - c < kWidth ? columns - c : kWidth,
            to.at(k + r / kPair, c));
      }
    }
  }
};

constexpr int64_t round_up(int64_t x, int64_t multiple) {
  return (x + multiple - 1) / multiple * multiple;
}

/// Hands out aligned parts of one buffer. Over a null buffer it only counts, so
/// that a buffer's size and its use come from the same lines.
class Scratch {
 public:
  explicit Scratch(void* buffer) : buffer_(static_cast<char*>(buffer)) {}

  template <class Number>
  Number* take(int64_t count) {
    char* part = buffer_ ? buffer_ + used_ : nullptr;
    used_ += round_up(count * static_cast<int64_t>(sizeof(Number)), 64);
    return reinterpret_cast<Number*>(part);
  }
  template <class Number>
  Rows<Number> rows(int64_t count, int64_t row) {
    return {take<Number>(count * row), row};
  }
  /// Words [k][n].
  template <class Machine>
  Panels<Machine> panels(int64_t k, int64_t n) {
    constexpr int64_t kWidth = Panels<Machine>::kWidth;
    return {take<Word>(k * round_up(n, kWidth)), k * kWidth};
  }
  int64_t used() const {
    return used_;
  }

 private:
  char* buffer_;
  int64_t used_ = 0;
};

} // namespace laga::kernels::blocked
