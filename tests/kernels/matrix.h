// Just enough matrices to write attention down as products of them.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

namespace laga::kernels::test {

template <class Real>
struct Matrix {
  int64_t rows = 0, columns = 0;
  std::vector<Real> values = {};

  Matrix() = default;
  Matrix(int64_t r, int64_t c)
      : rows(r), columns(c), values(static_cast<size_t>(r * c)) {}

  Real* operator[](int64_t row) {
    return values.data() + row * columns;
  }
  const Real* operator[](int64_t row) const {
    return values.data() + row * columns;
  }
};

/// A B; every sum in Real, from the first term to the last.
template <class Real>
Matrix<Real> product(const Matrix<Real>& a, const Matrix<Real>& b) {
  Matrix<Real> c(a.rows, b.columns);
  for (int64_t i = 0; i < a.rows; ++i) {
    Real* const to = c[i];
    for (int64_t k = 0; k < a.columns; ++k) {
      const Real factor = a[i][k];
      const Real* const from = b[k];
      for (int64_t j = 0; j < b.columns; ++j)
        to[j] += factor * from[j];
    }
  }
  return c;
}

template <class Real>
Matrix<Real> transposed(const Matrix<Real>& a) {
  Matrix<Real> t(a.columns, a.rows);
  for (int64_t i = 0; i < a.rows; ++i) {
    for (int64_t j = 0; j < a.columns; ++j)
      t[j][i] = a[i][j];
  }
  return t;
}

/// f of every element.
template <class Real, class Function>
Matrix<Real> mapped(Matrix<Real> a, const Function& f) {
  for (Real& x : a.values)
    x = f(x);
  return a;
}

template <class Real>
Matrix<Real> squared(const Matrix<Real>& a) {
  return mapped(a, [](Real x) { return x * x; });
}

} // namespace laga::kernels::test
