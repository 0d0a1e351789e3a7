#include "laga/kernels/arguments.h"

#include "laga/core/check.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <string>

namespace laga::kernels {

namespace {

using detail::concat;

// The arguments of one call, in whose name it fails.
template <class T>
class Arguments {
 public:
  Arguments(const char* function, const AttentionInputs<T>& in)
      : function_(function), in_(in) {}

  void check_inputs() const {
    check_sizes();
    check_mask();
    const auto [s_q, s_kv] = std::array{in_.q_tokens, in_.k_tokens};
    given("q_nope", in_.q_nope.data, s_q * in_.nope);
    given("q_pe", in_.q_pe.data, s_q * in_.rope);
    given("k_pe", in_.k_pe.data, s_kv * in_.rope);
    if (in_.kv_lora_rank == 0) {
      given("k_nope", in_.k_nope.data, s_kv * in_.nope);
      given("v", in_.v.data, s_kv * in_.v_width);
    } else {
      given("latent", in_.latent.data, s_kv);
      given("kv_b", in_.kv_b, 1);
      at_least("kv_b_row", in_.kv_b_row, in_.kv_lora_rank);
    }
  }

  // An output of `heads` heads, each row of which is written by itself.
  template <class Number>
  void written(
      const char* name,
      const View<Number>& view,
      int64_t tokens,
      int64_t heads,
      int64_t width) const {
    given(name, view.data, tokens * width);
    apart(name, view, tokens, heads, width);
  }

  // Per head, in one of the two ways.
  void query_gradient(
      const char* name, const GradientView<T>& to, int64_t width) const {
    one_way(name, to, in_.q_tokens * width);
    apart(name, to.store, in_.q_tokens, in_.heads, width);
    apart(name, to.add, in_.q_tokens, in_.heads, width);
  }

  // The same, or added over the heads.
  void key_gradient(
      const char* name, const GradientView<T>& to, int64_t width) const {
    one_way(name, to, in_.k_tokens * width);
    const int64_t adding_heads = to.add.head == 0 ? 1 : in_.heads;
    apart(name, to.store, in_.k_tokens, in_.heads, width);
    apart(name, to.add, in_.k_tokens, adding_heads, width);
  }

  void at_least(const char* name, int64_t value, int64_t least) const {
    if (value >= least) return;
    fail(concat(name, " >= ", least, " (", value, " vs ", least, ")"));
  }

  // Tensors of no elements need no memory.
  void given(const char* name, const void* data, int64_t elements) const {
    if (elements == 0 || data != nullptr) return;
    fail(concat(name, " is given (null)"));
  }

 private:
  [[noreturn]] void fail(const std::string& condition) const {
    detail::throw_invalid(
        function_,
        condition,
        concat(
            "b ",
            in_.batch,
            ", h ",
            in_.heads,
            ", s_q ",
            in_.q_tokens,
            ", s_kv ",
            in_.k_tokens,
            ", nope ",
            in_.nope,
            ", rope ",
            in_.rope,
            ", v_width ",
            in_.v_width,
            ", kv_lora_rank ",
            in_.kv_lora_rank));
  }

  void check_sizes() const {
    at_least("batch", in_.batch, 1);
    at_least("heads", in_.heads, 1);
    at_least("q_tokens", in_.q_tokens, 0);
    at_least("k_tokens", in_.k_tokens, 0);
    at_least("nope", in_.nope, 1);
    at_least("rope", in_.rope, 0);
    at_least("v_width", in_.v_width, 1);
    at_least("kv_lora_rank", in_.kv_lora_rank, 0);
    if (!(in_.scale > 0 && std::isfinite(in_.scale))) {
      fail(concat("scale > 0 and finite (", in_.scale, " vs 0)"));
    }
  }

  void check_mask() const {
    for (size_t n = 0; n < in_.mask.size(); ++n) {
      const MaskSlice& slice = in_.mask[n];
      inside(n, "queries", slice.q_begin, slice.q_end, in_.q_tokens);
      inside(n, "keys", slice.k_begin, slice.k_end, in_.k_tokens);
      // Twice: cutting a mask for a chunk shifts the offset of a full slice.
      // No sum of it and a token overflows.
      if (std::abs(slice.causal_offset) > 2 * MaskSlice::kFull) {
        fail(concat(
            "mask[",
            n,
            "] causal_offset within 2 kFull (",
            slice.causal_offset,
            " vs ",
            2 * MaskSlice::kFull,
            ")"));
      }
      for (size_t m = 0; m < n; ++m)
        no_common_pair(m, n);
    }
  }

  void inside(
      size_t n,
      const char* what,
      int64_t begin,
      int64_t end,
      int64_t tokens) const {
    if (0 <= begin && begin <= end && end <= tokens) return;
    fail(concat(
        "mask[",
        n,
        "] ",
        what,
        " inside the sequence ([",
        begin,
        ", ",
        end,
        ") vs [0, ",
        tokens,
        "))"));
  }

  // Of the rectangle that two slices have in common, the last query and the
  // first key are the pair that is seen if any is.
  void no_common_pair(size_t m, size_t n) const {
    const MaskSlice &a = in_.mask[m], &b = in_.mask[n];
    const int64_t i = std::min(a.q_end, b.q_end) - 1;
    const int64_t j = std::max(a.k_begin, b.k_begin);
    const bool overlap =
        i >= std::max(a.q_begin, b.q_begin) && j < std::min(a.k_end, b.k_end);
    if (!overlap || j > i + std::min(a.causal_offset, b.causal_offset)) return;
    fail(concat(
        "mask[",
        m,
        "] and mask[",
        n,
        "] have no common pair (query ",
        i,
        " sees key ",
        j,
        " in both)"));
  }

  void one_way(
      const char* name, const GradientView<T>& to, int64_t elements) const {
    const bool store = to.store.data != nullptr, add = to.add.data != nullptr;
    if (elements == 0 ? !(store && add) : store != add) return;
    fail(concat(
        name,
        " is either stored or added (",
        store ? "both" : "neither",
        " given)"));
  }

  // Strides are nested: each is at least the span of what is inside it.
  template <class Number>
  void apart(
      const char* name,
      const View<Number>& view,
      int64_t tokens,
      int64_t heads,
      int64_t width) const {
    if (view.data == nullptr || tokens == 0 || width == 0) return;
    struct Dimension {
      const char* name;
      int64_t stride, size;
    };
    std::array<Dimension, 3> dimensions{
        {{"token", std::abs(view.token), tokens},
         {"batch", std::abs(view.batch), in_.batch},
         {"head", std::abs(view.head), heads}}};
    std::sort(
        dimensions.begin(), dimensions.end(), [](const auto& a, const auto& b) {
          return a.stride < b.stride;
        });
    int64_t span = width;
    for (const Dimension& dimension : dimensions) {
      if (dimension.size == 1) continue;
      if (dimension.stride < span) {
        fail(concat(
            name,
            ": rows apart (",
            dimension.name,
            " stride ",
            dimension.stride,
            " vs ",
            span,
            ")"));
      }
      span += (dimension.size - 1) * dimension.stride;
    }
  }

  const char* function_;
  const AttentionInputs<T>& in_;
};

} // namespace

template <class T>
void check_forward(const ForwardParams<T>& params) {
  const Arguments<T> arguments("attention_forward", params);
  arguments.check_inputs();
  const int64_t s_q = params.q_tokens, heads = params.heads;
  arguments.written("lse", params.lse, s_q, heads, 1);
  if (params.running.data != nullptr) {
    arguments.written("running", params.running, s_q, heads, params.v_width);
  } else {
    arguments.written("out", params.out, s_q, heads, params.v_width);
  }
}

template <class T>
void check_backward(const BackwardParams<T>& params) {
  const Arguments<T> arguments("attention_backward", params);
  arguments.check_inputs();
  const int64_t s_q = params.q_tokens;
  arguments.given("d_out", params.d_out.data, s_q * params.v_width);
  arguments.given("lse", params.lse.data, s_q);
  arguments.given("delta", params.delta.data, s_q);
  arguments.query_gradient("d_q_nope", params.d_q_nope, params.nope);
  arguments.query_gradient("d_q_pe", params.d_q_pe, params.rope);
  arguments.key_gradient("d_k_pe", params.d_k_pe, params.rope);
  const int64_t c = params.kv_lora_rank;
  if (c == 0) {
    arguments.key_gradient("d_k_nope", params.d_k_nope, params.nope);
    arguments.key_gradient("d_v", params.d_v, params.v_width);
  } else {
    arguments.written("d_latent", params.d_latent, params.k_tokens, 1, c);
    arguments.given("d_kv_b", params.d_kv_b, 1);
    arguments.at_least("d_kv_b_row", params.d_kv_b_row, c);
  }
}

template void check_forward(const ForwardParams<Bf16>&);
template void check_forward(const ForwardParams<float>&);
template void check_forward(const ForwardParams<double>&);
template void check_backward(const BackwardParams<Bf16>&);
template void check_backward(const BackwardParams<float>&);
template void check_backward(const BackwardParams<double>&);

} // namespace laga::kernels
