// One tile of a matrix product: parts of A and B are widened into the layouts
// of the GEMM, kMatmulTile of k at a time. For operands of one float a word.
#pragma once

#include "laga/kernels/blocked/pack.h"
#include "laga/kernels/matmul.h"

namespace laga::kernels::blocked {

template <class Machine, class T>
class MatmulTile {
  using P = Pack<Machine>;
  static_assert(Machine::kPair == 1);
  static constexpr int64_t kTile = kMatmulTile;

 public:
  explicit MatmulTile(void* buffer) : scratch_(buffer) {
    loaded_ = scratch_.rows<Word>(kTile, kTile);
    a_ = scratch_.rows<Word>(kTile, kTile);
    b_ = scratch_.panels<Machine>(kTile, kTile);
    c_ = scratch_.rows<float>(kTile, kTile);
  }
  int64_t scratch_bytes() const {
    return scratch_.used();
  }

  void run(const MatmulParams<T>& p, int64_t tile) {
    const int64_t row = tile / p.column_tiles() * kTile;
    const int64_t column = tile % p.column_tiles() * kTile;
    const int64_t rows = smaller(p.m - row, kTile);
    const int64_t columns = smaller(p.n - column, kTile);
    P::zero(c_.data, kTile * kTile);
    for (int64_t k = 0; k < p.k; k += kTile) {
      const int64_t depth = smaller(p.k - k, kTile);
      load_a(p, row, rows, k, depth);
      load_b(p, k, depth, column, columns);
      gemm<Machine, true>(
          rows,
          round_up(columns, Machine::kLanes),
          depth,
          {a_.data, a_.row},
          b_.from(0),
          c_);
    }
    for (int64_t r = 0; r < rows; ++r)
      P::result_row(c_.at(r), columns, 1, p.c + (row + r) * p.c_row + column);
  }

 private:
  static int64_t smaller(int64_t a, int64_t b) {
    return a < b ? a : b;
  }
  // Lines of memory as rows of words, with zeros up to whole registers.
  static void load(
      const T* from,
      int64_t stride,
      int64_t lines,
      int64_t width,
      Rows<Word> to) {
    const int64_t padded = round_up(width, Machine::kLanes);
    for (int64_t i = 0; i < round_up(lines, Machine::kLanes); ++i) {
      P::zero(to.at(i), padded);
      if (i < lines) P::row(from + i * stride, width, to.at(i), 0);
    }
  }
  Rows<const Word> loaded() const {
    return {loaded_.data, loaded_.row};
  }

  void load_a(
      const MatmulParams<T>& p,
      int64_t row,
      int64_t rows,
      int64_t k,
      int64_t depth) {
    const T* from = p.a + row * p.a_row + k * p.a_column;
    if (p.a_column == 1) {
      load(from, p.a_row, rows, depth, a_);
    } else {
      load(from, p.a_column, depth, rows, loaded_);
      P::transpose(
          round_up(depth, Machine::kLanes),
          round_up(rows, Machine::kLanes),
          loaded(),
          a_);
    }
  }

  void load_b(
      const MatmulParams<T>& p,
      int64_t k,
      int64_t depth,
      int64_t column,
      int64_t columns) {
    const T* from = p.b + k * p.b_row + column * p.b_column;
    const int64_t lanes = Machine::kLanes;
    if (p.b_column == 1) {
      load(from, p.b_row, depth, columns, loaded_);
      P::interleave(depth, round_up(columns, lanes), loaded(), b_, 0);
    } else {
      load(from, p.b_column, columns, depth, loaded_);
      P::transpose(
          round_up(columns, lanes), round_up(depth, lanes), loaded(), b_, 0);
    }
  }

  Scratch scratch_;
  Rows<Word> loaded_;
  Rows<Word> a_;      // [rows, depth]
  Panels<Machine> b_; // [depth][columns]
  Rows<float> c_;     // [rows, columns]
};

} // namespace laga::kernels::blocked
