// C [m, n] (+)= A [m, k] B [k, n] in fp32, the one routine that all products of
// the kernels go through. A tile of kTileRows x kTileColumns registers stays in
// the register file while k runs; each step of k multiplies a word of A, spread
// over a register, with words of B beside each other: one fp32 product, or two
// of a bf16 pair. So A holds rows of words, and B words [k][n], a bf16 B with
// its rows interleaved in pairs.
//
// B is stored in panels as wide as a tile: what the innermost loop reads lies
// in one piece, and a panel is still in the first-level cache for the next
// tile. (A row of several hundred bytes between reads would leave most of its
// sets unused.)
#pragma once

#include "laga/kernels/blocked/vector.h"

namespace laga::kernels::blocked {

/// Rows of words (operands) or of floats (results) `row` apart.
template <class Number>
struct Rows {
  Number* data;
  int64_t row;

  Number* at(int64_t r, int64_t c = 0) const {
    return data + r * row + c;
  }
};

/// Words [k][n] in panels [k][kWidth] that lie `panel` words apart.
template <class Machine, class Number = Word>
struct Panels {
  static constexpr int64_t kWidth = Machine::kTileColumns * Machine::kLanes;
  Number* data;
  int64_t panel;

  /// n a multiple of kWidth, or within the panel of one that is.
  Number* at(int64_t k, int64_t n) const {
    return data + n / kWidth * panel + k * kWidth + n % kWidth;
  }
  Panels<Machine, const Word> from(int64_t k) const {
    return {data + k * kWidth, panel};
  }
};

template <class Machine, bool kAdd, int kRows, int kColumns>
[[gnu::always_inline]] inline void tile(
    int64_t k, Rows<const Word> a, const Word* b, Rows<float> c) {
  using Real = typename Machine::Real;
  Real sum[kRows][kColumns];
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
    for (int j = 0; j < kColumns; ++j) {
      sum[i][j] = kAdd ? Machine::load(c.at(i, j * Machine::kLanes)) : Real{};
    }
  }
  for (int64_t step = 0; step < k; ++step) {
    Real row[kColumns];
#pragma GCC unroll 8
    for (int j = 0; j < kColumns; ++j)
      row[j] = Machine::load(
          b + step * Panels<Machine>::kWidth + j * Machine::kLanes);
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) {
      const Word factor = *a.at(i, step);
#pragma GCC unroll 8
      for (int j = 0; j < kColumns; ++j)
        sum[i][j] = Machine::multiply_add(sum[i][j], factor, row[j]);
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
    for (int j = 0; j < kColumns; ++j)
      Machine::store(c.at(i, j * Machine::kLanes), sum[i][j]);
  }
}

// What is left below or right of the full tiles.
template <class Machine, bool kAdd, int kRows, int kColumns>
[[gnu::noinline]] void edge_tile(
    int64_t rows,
    int64_t columns,
    int64_t k,
    Rows<const Word> a,
    const Word* b,
    Rows<float> c) {
  if (rows < kRows) {
    if constexpr (kRows > 1) {
      edge_tile<Machine, kAdd, kRows - 1, kColumns>(rows, columns, k, a, b, c);
    }
  } else if (columns < kColumns) {
    if constexpr (kColumns > 1) {
      edge_tile<Machine, kAdd, kRows, kColumns - 1>(rows, columns, k, a, b, c);
    }
  } else {
    tile<Machine, kAdd, kRows, kColumns>(k, a, b, c);
  }
}

/// n is a multiple of Machine::kLanes; k counts words.
template <class Machine, bool kAdd>
[[gnu::noinline]] void gemm(
    int64_t m,
    int64_t n,
    int64_t k,
    Rows<const Word> a,
    Panels<Machine, const Word> b,
    Rows<float> c) {
  constexpr int kRows = Machine::kTileRows;
  constexpr int kColumns = Machine::kTileColumns;
  constexpr int64_t kWidth = Panels<Machine>::kWidth;
  for (int64_t column = 0; column < n; column += kWidth) {
    const Word* b_panel = b.at(0, column);
    const int64_t columns =
        n - column < kWidth ? (n - column) / Machine::kLanes : kColumns;
    int64_t row = 0;
    if (columns == kColumns) {
      for (; row + kRows <= m; row += kRows) {
        tile<Machine, kAdd, kRows, kColumns>(
            k, {a.at(row), a.row}, b_panel, {c.at(row, column), c.row});
      }
    }
    for (; row < m; row += kRows) {
      edge_tile<Machine, kAdd, kRows, kColumns>(
          m - row < kRows ? m - row : kRows,
          columns,
          k,
          {a.at(row), a.row},
          b_panel,
          {c.at(row, column), c.row});
    }
  }
}

} // namespace laga::kernels::blocked
