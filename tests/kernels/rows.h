// Memory as callers have it: several tensors side by side in each row, with
// strides and gaps, and something in the gaps that shows who touches them.
#pragma once

#include <cstring>

#include "tests/kernels/problem.h"

namespace laga::kernels::test {

/// Numbers of type N, [tokens, batch, heads, width] for each of `widths`.
template <class N>
class Rows {
 public:
  Rows() = default;
  Rows(
      Layout layout,
      int64_t tokens,
      int64_t batch,
      int64_t heads,
      std::vector<int64_t> widths,
      N everywhere)
      : tokens_(tokens),
        batch_(batch),
        heads_(heads),
        widths_(std::move(widths)),
        everywhere_(everywhere) {
    // Odd, so that the next row or tensor starts at another alignment.
    const int64_t gap = layout == Layout::kDense ? 0 : 1;
    begin_ = 3 * gap;
    int64_t row = 0;
    for (const int64_t width : widths_) {
      columns_.push_back(row);
      row += width + gap;
    }
    if (layout == Layout::kHeadsFirst) {
      token_ = row;
      head_ = tokens * token_ + 4 * gap;
      batch_stride_ = heads * head_ + 5 * gap;
      size_ = batch * batch_stride_;
    } else {
      head_ = row;
      batch_stride_ = heads * head_ + 4 * gap;
      token_ = batch * batch_stride_ + 5 * gap;
      size_ = tokens * token_;
    }
    // Past the end, where a vector too many would read or write.
    constexpr int64_t kGuard = 67;
    size_ += begin_ + kGuard;
    numbers_.assign(static_cast<size_t>(size_), everywhere);
  }

  /// Head stride 0 where there is one head.
  View<N> view(size_t column) {
    return {
        numbers_.data() + begin_ + columns_.at(column),
        token_,
        batch_stride_,
        heads_ == 1 ? 0 : head_};
  }
  View<const N> const_view(size_t column) {
    const View<N> v = view(column);
    return {v.data, v.token, v.batch, v.head};
  }

  void fill(size_t column, const Tensor& from) {
    for_each_row(column, [&](N* row, int64_t t, int64_t b, int64_t h) {
      const double* const numbers = from.row(t, b, h);
      for (int64_t x = 0; x < widths_[column]; ++x)
        row[x] = to_number<N>(numbers[x]);
    });
  }
  void fill(size_t column, N number) {
    for_each_row(column, [&](N* row, int64_t, int64_t, int64_t) {
      std::fill(row, row + widths_[column], number);
    });
  }

  Tensor read(size_t column) {
    Tensor to(tokens_, batch_, heads_, widths_[column]);
    for_each_row(column, [&](const N* row, int64_t t, int64_t b, int64_t h) {
      for (int64_t x = 0; x < widths_[column]; ++x)
        to.row(t, b, h)[x] = widen(row[x]);
    });
    return to;
  }

  /// All bits between, before and after the tensors are what they were.
  bool gaps_untouched() const {
    Rows copy = *this;
    for (size_t column = 0; column < widths_.size(); ++column)
      copy.fill(column, everywhere_);
    for (const N& number : copy.numbers_) {
      if (std::memcmp(&number, &everywhere_, sizeof(N)) != 0) return false;
    }
    return true;
  }

 private:
  template <class Function>
  void for_each_row(size_t column, const Function& f) {
    const View<N> all = view(column);
    for (int64_t t = 0; t < tokens_; ++t) {
      for (int64_t b = 0; b < batch_; ++b) {
        for (int64_t h = 0; h < heads_; ++h)
          f(all.at(t, b, h), t, b, h);
      }
    }
  }

  int64_t tokens_ = 0, batch_ = 0, heads_ = 0;
  std::vector<int64_t> widths_, columns_;
  N everywhere_{};
  int64_t begin_ = 0, token_ = 0, batch_stride_ = 0, head_ = 0, size_ = 0;
  std::vector<N> numbers_;
};

} // namespace laga::kernels::test
