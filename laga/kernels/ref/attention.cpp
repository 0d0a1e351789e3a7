// Attention as anybody would write it: loops over the pairs of a query and a
// key, every sum in fp64 whatever T is. Never optimised; the others are
// compared with it. Memory comes from the heap, not from `scratch`.
#include "laga/kernels/attention.h"

#include "laga/kernels/tables.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace laga::kernels {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// [rows, width] in fp64.
class Matrix {
 public:
  Matrix(int64_t rows, int64_t width)
      : width_(width), values_(static_cast<size_t>(rows * width)) {}

  double* operator[](int64_t row) {
    return values_.data() + row * width_;
  }
  const double* operator[](int64_t row) const {
    return values_.data() + row * width_;
  }

 private:
  int64_t width_;
  std::vector<double> values_;
};

template <class T>
T rounded(double x) {
  T to;
  narrow(static_cast<Accumulator<T>>(x), to);
  return to;
}

template <class Number>
void widen_row(const Number* from, int64_t width, double* to) {
  for (int64_t x = 0; x < width; ++x)
    to[x] = widen(from[x]);
}

double dot(const double* a, const double* b, int64_t width) {
  double sum = 0;
  for (int64_t x = 0; x < width; ++x)
    sum += a[x] * b[x];
  return sum;
}

// to += factor * from
void add_row(double factor, const double* from, int64_t width, double* to) {
  for (int64_t x = 0; x < width; ++x)
    to[x] += factor * from[x];
}

// Calls pair(j) for every key j that query i sees.
template <class Pair>
void for_each_seen(
    std::span<const MaskSlice> mask, int64_t i, const Pair& pair) {
  for (const MaskSlice& slice : mask) {
    if (i < slice.q_begin || i >= slice.q_end) continue;
    const int64_t end = std::min(slice.k_end, i + slice.causal_offset + 1);
    for (int64_t j = slice.k_begin; j < end; ++j)
      pair(j);
  }
}

// The inputs of one head of one sequence.
struct Head {
  Matrix q; // [s_q, nope + rope]
  Matrix k; // [s_kv, nope + rope]
  Matrix v; // [s_kv, v_width]
};

// Row of kv_b_h that makes column x of the head's keys beside its values.
template <class T>
const T* kv_b_row(const AttentionInputs<T>& in, int64_t head, int64_t x) {
  return in.kv_b + (head * (in.nope + in.v_width) + x) * in.kv_b_row;
}

// k_nope [nope] and v [v_width] of key j from its latent, rounded to T.
template <class T>
void expand_key(
    const AttentionInputs<T>& in,
    int64_t j,
    int64_t b,
    int64_t head,
    double* k,
    double* v) {
  const T* const latent = in.latent.at(j, b, 0); // [c]
  for (int64_t x = 0; x < in.nope + in.v_width; ++x) {
    const T* const row = kv_b_row(in, head, x); // [c]
    double sum = 0;
    for (int64_t y = 0; y < in.kv_lora_rank; ++y) {
      sum += double{widen(latent[y])} * double{widen(row[y])};
    }
    (x < in.nope ? k[x] : v[x - in.nope]) = widen(rounded<T>(sum));
  }
}

template <class T>
Head load_head(const AttentionInputs<T>& in, int64_t b, int64_t head) {
  Head x{
      Matrix(in.q_tokens, in.nope + in.rope),
      Matrix(in.k_tokens, in.nope + in.rope),
      Matrix(in.k_tokens, in.v_width)};
  for (int64_t i = 0; i < in.q_tokens; ++i) {
    widen_row(in.q_nope.at(i, b, head), in.nope, x.q[i]);
    widen_row(in.q_pe.at(i, b, head), in.rope, x.q[i] + in.nope);
  }
  for (int64_t j = 0; j < in.k_tokens; ++j) {
    if (in.kv_lora_rank > 0) {
      expand_key(in, j, b, head, x.k[j], x.v[j]);
    } else {
      widen_row(in.k_nope.at(j, b, head), in.nope, x.k[j]);
      widen_row(in.v.at(j, b, head), in.v_width, x.v[j]);
    }
    widen_row(in.k_pe.at(j, b, head), in.rope, x.k[j] + in.nope);
  }
  return x;
}

// Attention of query i over the keys that it sees: returns the log-sum-exp,
// -inf where there is none, and leaves the output in out [v_width].
template <class T>
double attend(
    const AttentionInputs<T>& in, const Head& x, int64_t i, double* out) {
  std::vector<double> scores;
  for_each_seen(in.mask, i, [&](int64_t j) {
    scores.push_back(in.scale * dot(x.q[i], x.k[j], in.nope + in.rope));
  });
  std::fill(out, out + in.v_width, 0.0);
  if (scores.empty()) return -kInfinity;
  const double largest = *std::max_element(scores.begin(), scores.end());
  double sum = 0;
  for (const double score : scores)
    sum += std::exp(score - largest);
  const double lse = largest + std::log(sum);
  size_t seen = 0;
  for_each_seen(in.mask, i, [&](int64_t j) {
    add_row(std::exp(scores[seen++] - lse), x.v[j], in.v_width, out);
  });
  return lse;
}

// Merges a row's part into what it has so far, both softmaxes of their own
// keys.
template <class Real>
void merge(
    double part_lse,
    const double* part, // [v_width]
    int64_t width,
    Real* lse,
    Real* running) { // [v_width]
  const double before = *lse;
  const double largest = std::max(before, part_lse);
  // Weights of the two parts. Where nothing was seen, `running` is not read.
  double total = -kInfinity, old_weight = 0, new_weight = 0;
  if (largest != -kInfinity) { // also NaN
    total = largest +
            std::log(std::exp(before - largest) + std::exp(part_lse - largest));
    old_weight = std::exp(before - total);
    new_weight = std::exp(part_lse - total);
  }
  for (int64_t x = 0; x < width; ++x) {
    const double old = before != -kInfinity ? old_weight * running[x] : 0;
    running[x] = static_cast<Real>(old + new_weight * part[x]);
  }
  *lse = static_cast<Real>(total);
}

template <class T>
void forward_head(const ForwardParams<T>& p, int64_t head, void* /*scratch*/) {
  std::vector<double> out(static_cast<size_t>(p.v_width));
  for (int64_t b = 0; b < p.batch; ++b) {
    const Head x = load_head(p, b, head);
    for (int64_t i = 0; i < p.q_tokens; ++i) {
      const double lse = attend(p, x, i, out.data());
      Accumulator<T>* const lse_to = p.lse.at(i, b, head);
      if (p.running.data != nullptr) {
        Accumulator<T>* const running = p.running.at(i, b, head);
        merge(lse, out.data(), p.v_width, lse_to, running);
        continue;
      }
      *lse_to = static_cast<Accumulator<T>>(lse);
      T* const out_to = p.out.at(i, b, head);
      for (int64_t c = 0; c < p.v_width; ++c)
        out_to[c] = rounded<T>(out[static_cast<size_t>(c)]);
    }
  }
}

// Gradients of one head of one sequence.
struct HeadGradients {
  Matrix q; // [s_q, nope + rope]
  Matrix k; // [s_kv, nope + rope]
  Matrix v; // [s_kv, v_width]
};

template <class T>
HeadGradients differentiate(
    const BackwardParams<T>& p, const Head& x, int64_t b, int64_t head) {
  const int64_t qk = p.nope + p.rope;
  HeadGradients d{
      Matrix(p.q_tokens, qk),
      Matrix(p.k_tokens, qk),
      Matrix(p.k_tokens, p.v_width)};
  std::vector<double> d_out(static_cast<size_t>(p.v_width));
  for (int64_t i = 0; i < p.q_tokens; ++i) {
    widen_row(p.d_out.at(i, b, head), p.v_width, d_out.data());
    const double lse = *p.lse.at(i, b, head);
    const double delta = *p.delta.at(i, b, head);
    for_each_seen(p.mask, i, [&](int64_t j) {
      const double score = p.scale * dot(x.q[i], x.k[j], qk);
      const double weight = std::exp(score - lse);
      const double d_weight = dot(d_out.data(), x.v[j], p.v_width);
      const double d_dot = p.scale * weight * (d_weight - delta);
      add_row(d_dot, x.k[j], qk, d.q[i]);
      add_row(d_dot, x.q[i], qk, d.k[j]);
      add_row(weight, d_out.data(), p.v_width, d.v[j]);
    });
  }
  return d;
}

// One row of a gradient to where it goes.
template <class T>
void put_row(
    const double* from,
    int64_t width,
    const GradientView<T>& to,
    int64_t t,
    int64_t b,
    int64_t head) {
  if (width == 0) return;
  if (to.add.data != nullptr) {
    Accumulator<T>* const row = to.add.at(t, b, head);
    for (int64_t x = 0; x < width; ++x)
      row[x] += static_cast<Accumulator<T>>(from[x]);
  } else {
    T* const row = to.store.at(t, b, head);
    for (int64_t x = 0; x < width; ++x)
      row[x] = rounded<T>(from[x]);
  }
}

// Gradients of key j's latent and of kv_b_h [nope + v_width, c] from those of
// k_nope beside v, which are rounded to T first, as a tensor of T would hold
// them.
template <class T>
void through_latent(
    const BackwardParams<T>& p,
    const HeadGradients& d,
    int64_t j,
    int64_t b,
    int64_t head,
    Matrix& d_kv_b) {
  const size_t c = static_cast<size_t>(p.kv_lora_rank);
  std::vector<double> d_latent(c), latent(c), weights(c);
  widen_row(p.latent.at(j, b, 0), p.kv_lora_rank, latent.data());
  for (int64_t x = 0; x < p.nope + p.v_width; ++x) {
    const double d_kv =
        widen(rounded<T>(x < p.nope ? d.k[j][x] : d.v[j][x - p.nope]));
    widen_row(kv_b_row(p, head, x), p.kv_lora_rank, weights.data());
    add_row(d_kv, weights.data(), p.kv_lora_rank, d_latent.data());
    add_row(d_kv, latent.data(), p.kv_lora_rank, d_kv_b[x]);
  }
  Accumulator<T>* const to = p.d_latent.at(j, b, 0);
  for (size_t y = 0; y < c; ++y)
    to[y] += static_cast<Accumulator<T>>(d_latent[y]);
}

template <class T>
void put_gradients(
    const BackwardParams<T>& p,
    const HeadGradients& d,
    int64_t b,
    int64_t head,
    Matrix& d_kv_b) {
  for (int64_t i = 0; i < p.q_tokens; ++i) {
    put_row(d.q[i], p.nope, p.d_q_nope, i, b, head);
    put_row(d.q[i] + p.nope, p.rope, p.d_q_pe, i, b, head);
  }
  for (int64_t j = 0; j < p.k_tokens; ++j) {
    put_row(d.k[j] + p.nope, p.rope, p.d_k_pe, j, b, head);
    if (p.kv_lora_rank > 0) {
      through_latent(p, d, j, b, head, d_kv_b);
    } else {
      put_row(d.k[j], p.nope, p.d_k_nope, j, b, head);
      put_row(d.v[j], p.v_width, p.d_v, j, b, head);
    }
  }
}

// A step is a sequence of the batch.
template <class T>
int64_t backward_steps(const BackwardParams<T>& p) {
  return p.batch;
}

template <class T>
void backward_head(
    const BackwardParams<T>& p,
    int64_t head,
    const typename Kernels<T>::Turns& turns,
    void* /*scratch*/) {
  const int64_t c = p.kv_lora_rank;
  const int64_t rows = c > 0 ? p.nope + p.v_width : 0; // of kv_b_h
  Matrix d_kv_b(rows, c);
  for (int64_t b = 0; b < p.batch; ++b) {
    const HeadGradients d = differentiate(p, load_head(p, b, head), b, head);
    turns.wait(turns.state, b, head);
    put_gradients(p, d, b, head, d_kv_b);
    turns.done(turns.state, b, head);
  }
  for (int64_t x = 0; x < rows; ++x) {
    T* const to = p.d_kv_b + (head * rows + x) * p.d_kv_b_row;
    for (int64_t y = 0; y < c; ++y)
      to[y] = rounded<T>(d_kv_b[x][y]);
  }
}

// One chain of dependent products: what a loop that nobody optimised reaches.
double multiply_add_loop(int64_t iterations) {
  double x = 1;
  for (int64_t i = 0; i < iterations; ++i)
    x = x * 0.5 + 0.5;
  const volatile double sink = x; // keeps the loop
  (void)sink;
  return 2.0 * static_cast<double>(iterations);
}

template <class Params>
int64_t no_scratch(const Params& /*params*/) {
  return 0;
}

template <class T>
constexpr Kernels<T> kRef{
    "ref",
    no_scratch<ForwardParams<T>>,
    no_scratch<BackwardParams<T>>,
    forward_head<T>,
    backward_steps<T>,
    backward_head<T>,
    nullptr,
    nullptr,
    multiply_add_loop};

} // namespace

const Kernels<Bf16>* ref_bf16() {
  return &kRef<Bf16>;
}

const Kernels<float>* ref_fp32() {
  return &kRef<float>;
}

const Kernels<double>* ref_fp64() {
  return &kRef<double>;
}

} // namespace laga::kernels
