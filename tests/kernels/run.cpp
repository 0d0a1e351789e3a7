#include "tests/kernels/run.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>

#include "tests/kernels/rows.h"

namespace laga::kernels::test {

namespace {

template <class N>
N nan_of() {
  return to_number<N>(std::numeric_limits<double>::quiet_NaN());
}

// Found nowhere else: in gaps of outputs, and in outputs before they are
// written.
template <class N>
N untouched() {
  return to_number<N>(-12288);
}

template <class N>
View<N> from_token(View<N> view, int64_t token) {
  if (view.data != nullptr) view.data += token * view.token;
  return view;
}

template <class T>
GradientView<T> from_token(const GradientView<T>& to, int64_t token) {
  return {from_token(to.store, token), from_token(to.add, token)};
}

// Scratch of some workers, full of NaN, with a guard behind it.
class Scratch {
 public:
  Scratch(int64_t worker_bytes, int workers)
      : bytes_(worker_bytes * workers),
        memory_(static_cast<size_t>(bytes_ + 2 * kAlignment), kGuard) {
    EXPECT_EQ(worker_bytes % kAlignment, 0);
    std::fill_n(data(), bytes_, std::byte{0xFF});
  }
  std::byte* data() {
    const auto address = reinterpret_cast<uintptr_t>(memory_.data());
    return memory_.data() + (kAlignment - address % kAlignment) % kAlignment;
  }
  bool guard_untouched() {
    return std::all_of(
        data() + bytes_, data() + bytes_ + kAlignment, [](auto x) {
          return x == kGuard;
        });
  }

 private:
  static constexpr int64_t kAlignment = 64;
  static constexpr std::byte kGuard{0xEE};
  int64_t bytes_;
  std::vector<std::byte> memory_;
};

// Where one gradient or two side by side go: to be stored, or to be added.
template <class T>
class GradientRows {
 public:
  GradientRows() = default;
  GradientRows(
      const Case& a,
      int64_t tokens,
      int64_t heads,
      const std::vector<int64_t>& widths,
      bool add,
      double initial)
      : initial_(initial) {
    using Real = Accumulator<T>;
    if (!add) {
      store_.emplace(a.layout, tokens, a.b, heads, widths, untouched<T>());
      return;
    }
    add_.emplace(a.layout, tokens, a.b, heads, widths, untouched<Real>());
    for (size_t column = 0; column < widths.size(); ++column)
      add_->fill(column, static_cast<Real>(initial));
  }

  GradientView<T> view(size_t column) {
    GradientView<T> to;
    if (store_) to.store = store_->view(column);
    if (add_) to.add = add_->view(column);
    return to;
  }
  Tensor read(size_t column) {
    if (store_) return store_->read(column);
    Tensor sum = add_->read(column);
    for (double& x : sum.values)
      x -= initial_;
    return sum;
  }
  bool gaps_untouched() const {
    return store_ ? store_->gaps_untouched() : add_->gaps_untouched();
  }

 private:
  double initial_ = 0;
  std::optional<Rows<T>> store_;
  std::optional<Rows<Accumulator<T>>> add_;
};

// A problem in the memory of a caller whose numbers are T.
template <class T>
class Run {
  using Real = Accumulator<T>;

 public:
  Run(const Kernels<T>& k, const Problem& problem, const RunOptions& options)
      : k_(k), p_(problem), a_(problem.sizes), options_(options) {
    if (options.threads) workers_ = worker_threads(options.workers);
    workers_.count = options.workers;
    place_inputs();
    place_outputs();
  }

  Results results() {
    forward();
    row_dots(
        std::as_const(out_view_),
        d_out_.const_view(0),
        delta_.view(0),
        a_.s_q,
        a_.b,
        a_.h,
        a_.v);
    backward();
    Results results = read_results();
    expect_gaps_untouched();
    return results;
  }

 private:
  // Keys [begin, end) of the sequence.
  struct Part {
    int64_t begin, end;
    std::vector<MaskSlice> mask;
  };

  template <class N>
  Rows<N> rows(
      int64_t tokens,
      int64_t heads,
      const std::vector<int64_t>& widths,
      N gap) {
    return Rows<N>(a_.layout, tokens, a_.b, heads, widths, gap);
  }

  void place_inputs() {
    const T nan = nan_of<T>();
    q_ = rows(a_.s_q, a_.h, {a_.nope, a_.rope}, nan);
    q_.fill(0, p_.q_nope);
    q_.fill(1, p_.q_pe);
    k_pe_ = rows(a_.s_kv, p_.k_pe.heads, {a_.rope}, nan);
    k_pe_.fill(0, p_.k_pe);
    d_out_ = rows(a_.s_q, a_.h, {a_.v}, nan);
    d_out_.fill(0, p_.d_out);
    if (a_.c > 0) {
      latent_ = rows(a_.s_kv, 1, {a_.c}, nan);
      latent_.fill(0, p_.latent);
      kv_b_ = Rows<T>(a_.layout, a_.h * (a_.nope + a_.v), 1, 1, {a_.c}, nan);
      kv_b_.fill(0, p_.kv_b);
    } else if (a_.keys_are_values) {
      kv_ = rows(a_.s_kv, 1, {a_.v}, nan);
      kv_.fill(0, p_.v);
    } else {
      kv_ = rows(a_.s_kv, a_.h, {a_.nope, a_.v}, nan);
      kv_.fill(0, p_.k_nope);
      kv_.fill(1, p_.v);
    }
  }

  void place_outputs() {
    const std::vector<int64_t> q_widths{a_.nope, a_.rope};
    const double initial = options_.initial;
    const bool parts = !options_.parts.empty();
    out_ = rows(a_.s_q, a_.h, {a_.v}, untouched<T>());
    out_view_ = out_.const_view(0);
    lse_ = rows(a_.s_q, a_.h, {1}, untouched<Real>());
    delta_ = rows(a_.s_q, a_.h, {1}, untouched<Real>());
    // The first part may not read what is here.
    running_ = rows(a_.s_q, a_.h, {a_.v}, nan_of<Real>());
    d_q_ =
        GradientRows<T>(a_, a_.s_q, a_.h, q_widths, a_.add || parts, initial);
    d_k_pe_ = GradientRows<T>(
        a_,
        a_.s_kv,
        p_.k_pe.heads,
        {a_.rope},
        a_.add || p_.k_pe.heads == 1,
        initial);
    if (a_.c > 0) {
      d_latent_ = rows(a_.s_kv, 1, {a_.c}, untouched<Real>());
      d_latent_.fill(0, static_cast<Real>(initial));
    } else if (a_.keys_are_values) {
      d_kv_ = GradientRows<T>(a_, a_.s_kv, 1, {a_.v}, true, initial);
    } else {
      d_kv_ =
          GradientRows<T>(a_, a_.s_kv, a_.h, {a_.nope, a_.v}, a_.add, initial);
    }
  }

  std::vector<Part> parts() const {
    if (options_.parts.empty()) return {{0, a_.s_kv, a_.mask}};
    std::vector<Part> parts;
    int64_t begin = 0;
    for (const int64_t tokens : options_.parts) {
      const int64_t end = begin + tokens;
      parts.push_back({begin, end, cut_keys(a_.mask, begin, end)});
      begin = end;
    }
    EXPECT_EQ(begin, a_.s_kv);
    return parts;
  }

  void set_inputs(const Part& part, AttentionInputs<T>& in) {
    in.batch = a_.b;
    in.heads = a_.h;
    in.q_tokens = a_.s_q;
    in.k_tokens = part.end - part.begin;
    in.nope = a_.nope;
    in.rope = a_.rope;
    in.v_width = a_.v;
    in.kv_lora_rank = a_.c;
    in.scale = p_.scale;
    in.mask = part.mask;
    in.q_nope = q_.const_view(0);
    if (a_.rope > 0) { // else there may be no memory
      in.q_pe = q_.const_view(1);
      in.k_pe = from_token(k_pe_.const_view(0), part.begin);
    }
    if (a_.c > 0) {
      in.latent = from_token(latent_.const_view(0), part.begin);
      in.kv_b = kv_b_.view(0).data;
      in.kv_b_row = kv_b_.view(0).token;
    } else {
      in.k_nope = from_token(kv_.const_view(0), part.begin);
      in.v = a_.keys_are_values ? in.k_nope
                                : from_token(kv_.const_view(1), part.begin);
    }
  }

  void forward() {
    const bool resumed = !options_.parts.empty();
    constexpr Real kInfinity = std::numeric_limits<Real>::infinity();
    if (resumed) lse_.fill(0, -kInfinity);
    for (const Part& part : parts()) {
      ForwardParams<T> params;
      set_inputs(part, params);
      params.lse = lse_.view(0);
      if (resumed) {
        params.running = running_.view(0);
      } else {
        params.out = out_.view(0);
      }
      Scratch scratch(k_.forward_scratch_bytes(params), options_.workers);
      attention_forward(k_, params, workers_, scratch.data());
      EXPECT_TRUE(scratch.guard_untouched()) << "forward";
    }
    if (resumed) out_.fill(0, running_.read(0));
  }

  void backward() {
    d_kv_b_sum_ = Tensor(p_.kv_b.tokens, 1, 1, a_.c);
    for (const Part& part : parts()) {
      BackwardParams<T> params;
      set_inputs(part, params);
      params.d_out = d_out_.const_view(0);
      params.lse = lse_.const_view(0);
      params.delta = delta_.const_view(0);
      params.d_q_nope = d_q_.view(0);
      if (a_.rope > 0) {
        params.d_q_pe = d_q_.view(1);
        params.d_k_pe = from_token(d_k_pe_.view(0), part.begin);
      }
      Rows<T> d_kv_b(a_.layout, p_.kv_b.tokens, 1, 1, {a_.c}, untouched<T>());
      if (a_.c > 0) {
        params.d_latent = from_token(d_latent_.view(0), part.begin);
        params.d_kv_b = d_kv_b.view(0).data;
        params.d_kv_b_row = d_kv_b.view(0).token;
      } else {
        params.d_k_nope = from_token(d_kv_.view(0), part.begin);
        params.d_v =
            from_token(d_kv_.view(a_.keys_are_values ? 0 : 1), part.begin);
      }
      Scratch scratch(k_.backward_scratch_bytes(params), options_.workers);
      attention_backward(k_, params, workers_, scratch.data());
      EXPECT_TRUE(scratch.guard_untouched()) << "backward";
      EXPECT_TRUE(d_kv_b.gaps_untouched()) << "d_kv_b";
      const Tensor of_part = d_kv_b.read(0);
      for (size_t n = 0; n < of_part.values.size(); ++n)
        d_kv_b_sum_.values[n] += of_part.values[n];
    }
  }

  Results read_results() {
    Results results;
    results["out"] = options_.parts.empty() ? out_.read(0) : running_.read(0);
    results["lse"] = lse_.read(0);
    results["d_q_nope"] = d_q_.read(0);
    results["d_q_pe"] = d_q_.read(1);
    results["d_k_pe"] = d_k_pe_.read(0);
    if (a_.c > 0) {
      Tensor& d_latent = results["d_latent"] = d_latent_.read(0);
      for (double& x : d_latent.values)
        x -= options_.initial;
      results["d_kv_b"] = d_kv_b_sum_;
    } else if (a_.keys_are_values) {
      results["d_keys_values"] = d_kv_.read(0);
    } else {
      results["d_k_nope"] = d_kv_.read(0);
      results["d_v"] = d_kv_.read(1);
    }
    return results;
  }

  void expect_gaps_untouched() {
    EXPECT_TRUE(out_.gaps_untouched()) << "out";
    EXPECT_TRUE(lse_.gaps_untouched()) << "lse";
    EXPECT_TRUE(running_.gaps_untouched()) << "running";
    EXPECT_TRUE(d_q_.gaps_untouched()) << "d_q_nope, d_q_pe";
    EXPECT_TRUE(d_k_pe_.gaps_untouched()) << "d_k_pe";
    if (a_.c > 0) {
      EXPECT_TRUE(d_latent_.gaps_untouched()) << "d_latent";
    } else {
      EXPECT_TRUE(d_kv_.gaps_untouched()) << "d_k_nope, d_v";
    }
  }

  const Kernels<T>& k_;
  const Problem& p_;
  const Case& a_;
  const RunOptions& options_;
  Workers workers_;
  Rows<T> q_, k_pe_, kv_, latent_, kv_b_, d_out_, out_;
  Rows<Real> lse_, delta_, running_, d_latent_;
  GradientRows<T> d_q_, d_k_pe_, d_kv_;
  Tensor d_kv_b_sum_; // over the parts
  View<const T> out_view_;
};

template <class T>
void append_runnable(std::vector<AnyKernels>& all) {
  for (const Kernels<T>* const kernels : runnable_kernels<T>())
    all.emplace_back(kernels);
}

} // namespace

std::vector<AnyKernels> all_kernels() {
  std::vector<AnyKernels> all;
  append_runnable<Bf16>(all);
  append_runnable<float>(all);
  append_runnable<double>(all);
  return all;
}

std::string name_of(const AnyKernels& kernels) {
  static constexpr std::array kTypes{"bf16", "fp32", "fp64"};
  const auto isa = [](const auto* k) { return std::string(k->isa); };
  return std::visit(isa, kernels) + "_" + kTypes[kernels.index()];
}

template <class T>
Results run(
    const Kernels<T>& kernels,
    const Problem& problem,
    const RunOptions& options) {
  return Run<T>(kernels, problem, options).results();
}

template Results run(const Kernels<Bf16>&, const Problem&, const RunOptions&);
template Results run(const Kernels<float>&, const Problem&, const RunOptions&);
template Results run(const Kernels<double>&, const Problem&, const RunOptions&);

} // namespace laga::kernels::test
