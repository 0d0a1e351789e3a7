#include "tests/kernels/plain.h"

#include <algorithm>
#include <limits>

#include "tests/kernels/matrix.h"

namespace laga::kernels::test {

namespace {

// One head of one sequence.
template <class Real>
struct HeadInputs {
  Matrix<Real> q, k;         // [s_q, nope + rope], [s_kv, nope + rope]
  Matrix<Real> v, d_out;     // [s_kv, v], [s_q, v]
  Matrix<Real> latent, kv_b; // [s_kv, c], [nope + v, c]
};

template <class Real>
struct HeadResults {
  Matrix<Real> scores, weights, d_weights, d_scores; // [s_q, s_kv]
  Matrix<Real> out, lse;                             // [s_q, v], [s_q, 1]
  Matrix<Real> d_q, d_k, d_v;                        // as the inputs
  Matrix<Real> d_latent, d_kv_b;
};

template <class Real>
void copy_columns(
    const Tensor& from, int64_t b, int64_t h, Matrix<Real>& to, int64_t begin) {
  for (int64_t t = 0; t < from.tokens; ++t) {
    const double* const row = from.row(t, b, h);
    for (int64_t x = 0; x < from.width; ++x)
      to[t][begin + x] = static_cast<Real>(row[x]);
  }
}

template <class T, class Real>
void expand_latent(
    const Problem& p, int64_t b, int64_t h, HeadInputs<Real>& in) {
  const Case& a = p.sizes;
  in.latent = Matrix<Real>(a.s_kv, a.c);
  copy_columns(p.latent, b, 0, in.latent, 0);
  in.kv_b = Matrix<Real>(a.nope + a.v, a.c);
  for (int64_t x = 0; x < a.nope + a.v; ++x) {
    const double* const row = p.kv_b.row(h * (a.nope + a.v) + x, 0, 0);
    std::copy(row, row + a.c, in.kv_b[x]);
  }
  const Matrix<Real> kv = product(in.latent, transposed(in.kv_b));
  for (int64_t j = 0; j < a.s_kv; ++j) {
    for (int64_t x = 0; x < a.nope + a.v; ++x) {
      const auto number = static_cast<Real>(rounded_to<T>(kv[j][x]));
      (x < a.nope ? in.k[j][x] : in.v[j][x - a.nope]) = number;
    }
  }
}

template <class T, class Real>
HeadInputs<Real> head_inputs(const Problem& p, int64_t b, int64_t h) {
  const Case& a = p.sizes;
  HeadInputs<Real> in;
  in.q = Matrix<Real>(a.s_q, a.nope + a.rope);
  in.k = Matrix<Real>(a.s_kv, a.nope + a.rope);
  in.v = Matrix<Real>(a.s_kv, a.v);
  in.d_out = Matrix<Real>(a.s_q, a.v);
  copy_columns(p.q_nope, b, h, in.q, 0);
  copy_columns(p.q_pe, b, h, in.q, a.nope);
  copy_columns(p.k_pe, b, h, in.k, a.nope);
  copy_columns(p.d_out, b, h, in.d_out, 0);
  if (a.c > 0) {
    expand_latent<T>(p, b, h, in);
  } else {
    copy_columns(p.k_nope, b, h, in.k, 0);
    copy_columns(p.v, b, h, in.v, 0);
  }
  return in;
}

// Softmax over the keys that each query sees, and the log-sum-exp of `scores`.
template <class Real, class Rounding>
void softmax(
    const Problem& p, const Rounding& round, HeadResults<Real>& results) {
  const auto [s_q, s_kv] = std::pair{p.sizes.s_q, p.sizes.s_kv};
  constexpr Real kInfinity = std::numeric_limits<Real>::infinity();
  results.weights = Matrix<Real>(s_q, s_kv);
  results.lse = Matrix<Real>(s_q, 1);
  for (int64_t i = 0; i < s_q; ++i) {
    const Real* const scores = results.scores[i];
    std::vector<int64_t> seen;
    Real largest = -kInfinity, sum = 0, sum_of_rounded = 0;
    for (int64_t j = 0; j < s_kv; ++j) {
      if (!sees(p.sizes.mask, i, j)) continue;
      seen.push_back(j);
      largest = std::max(largest, scores[j]);
    }
    for (const int64_t j : seen) {
      sum += std::exp(scores[j] - largest);
      sum_of_rounded += std::exp(round(scores[j]) - round(largest));
    }
    results.lse[i][0] = seen.empty() ? -kInfinity : largest + std::log(sum);
    for (const int64_t j : seen) {
      results.weights[i][j] =
          round(std::exp(round(scores[j]) - round(largest)) / sum_of_rounded);
    }
  }
}

template <class Real, class Rounding>
HeadResults<Real> attend(
    const Problem& p, const HeadInputs<Real>& in, const Rounding& round) {
  const auto scale = static_cast<Real>(p.scale);
  const auto scaled = [&](Real x) { return round(scale * x); };
  HeadResults<Real> r;
  r.scores = mapped(
      product(in.q, transposed(in.k)), [&](Real x) { return scale * x; });
  softmax(p, round, r);
  r.out = mapped(product(r.weights, in.v), round);

  r.d_weights = mapped(product(in.d_out, transposed(in.v)), round);
  r.d_scores = Matrix<Real>(r.scores.rows, r.scores.columns);
  for (int64_t i = 0; i < r.scores.rows; ++i) {
    Real mean = 0;
    for (int64_t j = 0; j < r.scores.columns; ++j)
      mean += r.weights[i][j] * r.d_weights[i][j];
    for (int64_t j = 0; j < r.scores.columns; ++j) {
      r.d_scores[i][j] = round(r.weights[i][j] * (r.d_weights[i][j] - mean));
    }
  }
  r.d_q = mapped(product(r.d_scores, in.k), scaled);
  r.d_k = mapped(product(transposed(r.d_scores), in.q), scaled);
  r.d_v = mapped(product(transposed(r.weights), in.d_out), round);
  return r;
}

// The gradients of k_nope beside v [s_kv, nope + v], through the expansion.
template <class Real, class Rounding>
void through_latent(
    const Case& a,
    const Matrix<Real>& latent,
    const Matrix<Real>& kv_b,
    const Rounding& round,
    HeadResults<Real>& r) {
  Matrix<Real> d_kv(a.s_kv, a.nope + a.v);
  for (int64_t j = 0; j < a.s_kv; ++j) {
    std::copy(r.d_k[j], r.d_k[j] + a.nope, d_kv[j]);
    std::copy(r.d_v[j], r.d_v[j] + a.v, d_kv[j] + a.nope);
  }
  r.d_latent = product(d_kv, kv_b);
  r.d_kv_b = mapped(product(transposed(d_kv), latent), round);
}

// to += columns [begin, begin + width) of `from`.
template <class Real>
void add_columns(
    const Matrix<Real>& from, int64_t begin, int64_t b, int64_t h, Tensor& to) {
  for (int64_t t = 0; t < to.tokens; ++t) {
    double* const row = to.row(t, b, h);
    for (int64_t x = 0; x < to.width; ++x)
      row[x] += static_cast<double>(from[t][begin + x]);
  }
}

Results empty_results(const Problem& p) {
  const Case& a = p.sizes;
  Results results;
  results["out"] = Tensor(a.s_q, a.b, a.h, a.v);
  results["lse"] = Tensor(a.s_q, a.b, a.h, 1);
  results["d_q_nope"] = Tensor(a.s_q, a.b, a.h, a.nope);
  results["d_q_pe"] = Tensor(a.s_q, a.b, a.h, a.rope);
  results["d_k_pe"] = Tensor(a.s_kv, a.b, p.k_pe.heads, a.rope);
  if (a.c > 0) {
    results["d_latent"] = Tensor(a.s_kv, a.b, 1, a.c);
    results["d_kv_b"] = Tensor(a.h * (a.nope + a.v), 1, 1, a.c);
  } else if (a.keys_are_values) {
    results["d_keys_values"] = Tensor(a.s_kv, a.b, 1, a.v);
  } else {
    results["d_k_nope"] = Tensor(a.s_kv, a.b, a.h, a.nope);
    results["d_v"] = Tensor(a.s_kv, a.b, a.h, a.v);
  }
  return results;
}

// Adds one head's results where they belong; shared ones are summed.
template <class Real>
void add_head(
    const Case& a,
    const HeadResults<Real>& r,
    int64_t b,
    int64_t h,
    Results& to) {
  add_columns(r.out, 0, b, h, to.at("out"));
  add_columns(r.lse, 0, b, h, to.at("lse"));
  add_columns(r.d_q, 0, b, h, to.at("d_q_nope"));
  add_columns(r.d_q, a.nope, b, h, to.at("d_q_pe"));
  add_columns(r.d_k, a.nope, b, h, to.at("d_k_pe"));
  if (a.c > 0) {
    add_columns(r.d_latent, 0, b, 0, to.at("d_latent"));
    for (int64_t x = 0; x < a.nope + a.v; ++x) {
      double* const row = to.at("d_kv_b").row(h * (a.nope + a.v) + x, 0, 0);
      for (int64_t y = 0; y < a.c; ++y)
        row[y] += static_cast<double>(r.d_kv_b[x][y]);
    }
  } else if (a.keys_are_values) {
    add_columns(r.d_k, 0, b, h, to.at("d_keys_values"));
    add_columns(r.d_v, 0, b, h, to.at("d_keys_values"));
  } else {
    add_columns(r.d_k, 0, b, h, to.at("d_k_nope"));
    add_columns(r.d_v, 0, b, h, to.at("d_v"));
  }
}

template <class T, class Real, class Rounding>
Results all_results(const Problem& p, const Rounding& round) {
  const Case& a = p.sizes;
  Results results = empty_results(p);
  for (int64_t b = 0; b < a.b; ++b) {
    for (int64_t h = 0; h < a.h; ++h) {
      const auto in = head_inputs<T, Real>(p, b, h);
      HeadResults<Real> r = attend(p, in, round);
      if (a.c > 0) through_latent(a, in.latent, in.kv_b, round, r);
      add_head(a, r, b, h, results);
    }
  }
  if (results.count("d_kv_b") > 0) {
    // A weight's gradient is one sum over sequences, rounded once.
    for (double& x : results["d_kv_b"].values)
      x = round(static_cast<Real>(x));
  }
  return results;
}

// The sum of squared terms of each of a head's results: the same products of
// squared matrices.
HeadResults<double> sums_of_squares(
    const Problem& p,
    const HeadInputs<double>& in,
    const HeadResults<double>& r) {
  const auto scaled = [&](double x) { return p.scale * p.scale * x; };
  const Matrix<double> q2 = squared(in.q), k2 = squared(in.k);
  const Matrix<double> v2 = squared(in.v), d_out2 = squared(in.d_out);
  const Matrix<double> weights2 = squared(r.weights);
  HeadResults<double> sums;
  sums.scores = mapped(product(q2, transposed(k2)), scaled);
  sums.out = product(weights2, v2);
  sums.lse = Matrix<double>(p.sizes.s_q, 1);
  std::fill(sums.lse.values.begin(), sums.lse.values.end(), 1.0);
  // d_score = weight (d_weight - delta), whose two terms are sums.
  sums.d_scores = product(d_out2, transposed(v2));
  for (int64_t i = 0; i < r.scores.rows; ++i) {
    double delta2 = 0;
    for (int64_t x = 0; x < p.sizes.v; ++x) {
      delta2 += std::pow(r.out[i][x] * in.d_out[i][x], 2);
    }
    for (int64_t j = 0; j < r.scores.columns; ++j) {
      sums.d_scores[i][j] = weights2[i][j] * (sums.d_scores[i][j] + delta2);
    }
  }
  sums.d_q = mapped(product(sums.d_scores, k2), scaled);
  sums.d_k = mapped(product(transposed(sums.d_scores), q2), scaled);
  sums.d_v = product(transposed(weights2), d_out2);
  if (p.sizes.c > 0) {
    const auto exactly = [](double x) { return x; };
    through_latent(
        p.sizes, squared(in.latent), squared(in.kv_b), exactly, sums);
  }
  return sums;
}

} // namespace

template <class T>
Results exact_results(const Problem& problem) {
  return all_results<T, double>(problem, [](double x) { return x; });
}

template <class T>
Results low_precision_results(const Problem& problem) {
  using Real = Accumulator<T>;
  return all_results<T, Real>(
      problem, [](Real x) { return static_cast<Real>(rounded_to<T>(x)); });
}

template <class T>
Magnitudes magnitudes(const Problem& p) {
  const Case& a = p.sizes;
  const auto exactly = [](double x) { return x; };
  Results squares = empty_results(p);
  Magnitudes result;
  for (int64_t b = 0; b < a.b; ++b) {
    for (int64_t h = 0; h < a.h; ++h) {
      const auto in = head_inputs<T, double>(p, b, h);
      const auto r = attend(p, in, exactly);
      const auto sums = sums_of_squares(p, in, r);
      add_head(a, sums, b, h, squares);
      for (size_t n = 0; n < r.scores.values.size(); ++n) {
        result.scores = std::max(
            {result.scores,
             std::abs(r.scores.values[n]),
             std::sqrt(sums.scores.values[n])});
      }
    }
  }
  for (const auto& [name, tensor] : squares) {
    double& largest = result.results[name];
    for (const double x : tensor.values)
      largest = std::max(largest, std::sqrt(x));
  }
  return result;
}

#define LAGA_INSTANTIATE_(T)                                 \
  template Results exact_results<T>(const Problem&);         \
  template Results low_precision_results<T>(const Problem&); \
  template Magnitudes magnitudes<T>(const Problem&)
LAGA_INSTANTIATE_(Bf16);
LAGA_INSTANTIATE_(float);
LAGA_INSTANTIATE_(double);
#undef LAGA_INSTANTIATE_

} // namespace laga::kernels::test
