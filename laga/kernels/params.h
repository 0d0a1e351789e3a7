// What attention on raw pointers is asked for. One set of structs for all
// number types: T is Bf16, float or double; sums, log-sum-exp and delta are
// Accumulator<T>: float for Bf16 and float, double for double.
#pragma once

#include "laga/core/bf16.h"

#include <cstdint>
#include <limits>
#include <span>

namespace laga::kernels {

/// [tokens, batch, heads, width], strides in elements, unit stride in width.
/// Head stride 0: all heads share.
template <class T>
struct View {
  T* data = nullptr;
  int64_t token = 0;
  int64_t batch = 0;
  int64_t head = 0;

  T* at(int64_t t, int64_t b, int64_t h) const {
    return data + t * token + b * batch + h * head;
  }
};

/// Query i of [q_begin, q_end) sees key j of [k_begin, k_end) if
/// j <= i + causal_offset. A mask is a list of slices without common pairs: one
/// for full or causal attention, one per chunk pair for zigzag, one per
/// document for packed sequences. What no slice names is not seen.
struct MaskSlice {
  static constexpr int64_t kFull = std::numeric_limits<int64_t>::max() / 4;

  int64_t q_begin = 0;
  int64_t q_end = 0;
  int64_t k_begin = 0;
  int64_t k_end = 0;
  int64_t causal_offset = kFull;
};

/// Sizes and inputs that forward and backward have in common.
/// scores = scale (q_nope k_nope^T + q_pe k_pe^T), out = softmax(scores) v.
/// Keys and values are given per head or shared by all heads, or, where
/// kv_lora_rank > 0, as the latent that they are made of: head h's k_nope
/// beside its v is latent kv_b_h^T, rounded to T, with kv_b's rows in Hugging
/// Face's order. Nothing beyond the given widths is read.
template <class T>
struct AttentionInputs {
  int64_t batch = 1;        // b
  int64_t heads = 0;        // h
  int64_t q_tokens = 0;     // s_q, may be 0
  int64_t k_tokens = 0;     // s_kv, may be 0
  int64_t nope = 0;         // width of q_nope and k_nope; c in latent space
  int64_t rope = 0;         // r, may be 0
  int64_t v_width = 0;      // width of v and out
  int64_t kv_lora_rank = 0; // c where keys are made from `latent`, else 0
  double scale = 1;         // of the scores, > 0
  std::span<const MaskSlice> mask;

  View<const T> q_nope;    // [s_q, b, h, nope]
  View<const T> q_pe;      // [s_q, b, h, rope]
  View<const T> k_pe;      // [s_kv, b, h, rope]
  View<const T> k_nope;    // [s_kv, b, h, nope]; unused with a latent
  View<const T> v;         // [s_kv, b, h, v_width]; unused with a latent
  View<const T> latent;    // [s_kv, b, 1, c], where kv_lora_rank > 0
  const T* kv_b = nullptr; // [h (nope + v_width), c]
  int64_t kv_b_row = 0;    // elements from one row of kv_b to the next
};

/// A row that sees no key: out 0, lse -inf.
template <class T>
struct ForwardParams : AttentionInputs<T> {
  View<T> out;              // [s_q, b, h, v_width]
  View<Accumulator<T>> lse; // [s_q, b, h, 1], natural logarithm
  /// Resumed calls, for keys that come in parts: the output so far in the
  /// accumulators' precision, [s_q, b, h, v_width], read together with lse and
  /// replaced together with it. The first call finds lse = -inf everywhere, and
  /// then reads nothing here. `out` is unused. Null: one call sees all keys.
  View<Accumulator<T>> running;
};

/// Where a gradient goes: exactly one of two ways.
template <class T>
struct GradientView {
  View<T> store;            // overwritten, rounded once
  View<Accumulator<T>> add; // added to: for resumed calls, and always for
                            // what heads share (head stride 0), whose heads
                            // are added in their order. The caller clears it.
};

/// Of the whole softmax: lse and delta are those of all keys, also where this
/// call has a part of them. d_k_nope and d_v may add to the same memory (keys =
/// values in latent space).
template <class T>
struct BackwardParams : AttentionInputs<T> {
  View<const T> d_out;              // [s_q, b, h, v_width]
  View<const Accumulator<T>> lse;   // [s_q, b, h, 1]
  View<const Accumulator<T>> delta; // [s_q, b, h, 1], rowsum(out d_out)

  GradientView<T> d_q_nope;      // [s_q, b, h, nope]
  GradientView<T> d_q_pe;        // [s_q, b, h, rope]
  GradientView<T> d_k_pe;        // [s_kv, b, h, rope]
  GradientView<T> d_k_nope;      // [s_kv, b, h, nope]; unused with a latent
  GradientView<T> d_v;           // [s_kv, b, h, v_width]; unused with a latent
  View<Accumulator<T>> d_latent; // [s_kv, b, 1, c], added to, in heads' order
  T* d_kv_b = nullptr;           // [h (nope + v_width), c], overwritten
  int64_t d_kv_b_row = 0;
};

} // namespace laga::kernels
