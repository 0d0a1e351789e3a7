// Keys and values of one head as rows of operands: read from the caller's
// tensors, or made from the latent and thrown away after use.
#pragma once

#include "laga/kernels/blocked/pack.h"
#include "laga/kernels/params.h"

namespace laga::kernels::blocked {

/// Widths of a head's rows, padded with zeros to whole registers.
template <class Machine>
struct Widths {
  template <class T>
  explicit Widths(const AttentionInputs<T>& in)
      : qk(in.nope + in.rope),
        v(in.v_width),
        qk_words(words(qk)),
        v_words(words(v)),
        qk_padded(qk_words * Machine::kPair),
        v_padded(v_words * Machine::kPair) {}

  static int64_t words(int64_t width) {
    return round_up(width, Machine::kPair * Machine::kLanes) / Machine::kPair;
  }

  int64_t qk, v;
  int64_t qk_words, v_words;
  int64_t qk_padded, v_padded;
};

/// Keys that are worked on at a time: as many as keep their rows and those of
/// their values within 320 KiB, which leaves room in a second-level cache of
/// 512 KiB; from 64 to 512, a multiple of 64.
template <class Machine>
int64_t key_block(const Widths<Machine>& widths) {
  const int64_t row_bytes = (widths.qk_words + widths.v_words) * 4;
  const int64_t fit = (int64_t{320} << 10) / row_bytes / 64 * 64;
  return fit < 64 ? 64 : fit > 512 ? 512 : fit;
}

/// LAGA's up-projection of one head, kv = latent kv_b_h^T, and its backward.
template <class Machine, class T>
class LatentHead {
  using P = Pack<Machine>;

 public:
  /// For up to `rows` tokens at a time. Takes nothing where there is no latent.
  LatentHead(
      const AttentionInputs<T>& in,
      int64_t rows,
      bool backward,
      Scratch& scratch)
      : in_(in), kv_(in.nope + in.v_width) {
    if (in.kv_lora_rank == 0) return;
    c_words_ = Widths<Machine>::words(in.kv_lora_rank);
    kv_words_ = Widths<Machine>::words(kv_);
    kv_padded_ = kv_words_ * Machine::kPair;
    c_padded_ = c_words_ * Machine::kPair;
    weight_rows_ = scratch.rows<Word>(kv_padded_, c_words_);
    weight_up_ = scratch.panels<Machine>(c_words_, kv_padded_);
    latent_rows_ = scratch.rows<Word>(rows, c_words_);
    expanded_ = scratch.rows<float>(rows, kv_padded_);
    if (!backward) return;
    weight_down_ = scratch.panels<Machine>(kv_words_, c_padded_);
    latent_pairs_ = scratch.panels<Machine>(rows / Machine::kPair, c_padded_);
    d_kv_rows_ = scratch.rows<Word>(rows, kv_words_);
    d_kv_pairs_ = scratch.rows<Word>(rows / Machine::kPair, kv_padded_);
    d_kv_columns_ = scratch.rows<Word>(kv_padded_, rows / Machine::kPair);
    d_weight_ = scratch.rows<float>(kv_padded_, c_padded_);
    d_latent_ = scratch.rows<float>(rows, c_padded_);
  }

  /// Packs the head's rows of kv_b.
  void begin(int64_t head, bool backward) {
    for (int64_t r = 0; r < kv_padded_; ++r) {
      P::zero(weight_rows_.at(r), c_words_);
      if (r < kv_) {
        P::row(
            in_.kv_b + (head * kv_ + r) * in_.kv_b_row,
            in_.kv_lora_rank,
            weight_rows_.at(r),
            0);
      }
    }
    P::transpose(kv_padded_, c_words_, rows(weight_rows_), weight_up_, 0);
    if (!backward) return;
    P::interleave(kv_padded_, c_padded_, rows(weight_rows_), weight_down_, 0);
    P::zero(d_weight_.data, kv_padded_ * c_padded_);
  }

  /// k_nope and v of `count` tokens from `first` on, rounded to T. Rows of k
  /// keep what is beyond k_nope.
  void expand(
      int64_t b, int64_t first, int64_t count, Rows<Word> k, Rows<Word> v) {
    load_latent(b, first, count);
    gemm<Machine, false>(
        count,
        kv_padded_,
        c_words_,
        rows(latent_rows_),
        weight_up_.from(0),
        expanded_);
    for (int64_t r = 0; r < count; ++r) {
      P::template rounded_row<T>(expanded_.at(r), in_.nope, k.at(r), 0);
      P::template rounded_row<T>(
          expanded_.at(r, in_.nope), in_.v_width, v.at(r), 0);
    }
  }

  /// Of the tokens that expand() saw last: adds to kv_b's gradient and leaves
  /// the head's part of the latent's in d_latent() [count, c].
  /// d_k [count, .] (its first columns), d_v [count, .].
  void add_gradients(
      int64_t count, Rows<const float> d_k, Rows<const float> d_v) {
    const int64_t padded = round_up(count, Machine::kPair * Machine::kLanes);
    for (int64_t r = 0; r < padded; ++r) {
      P::zero(d_kv_rows_.at(r), kv_words_);
      if (r >= count) {
        P::zero(latent_rows_.at(r), c_words_);
        continue;
      }
      float* d_kv = expanded_.at(r);
      for (int64_t i = 0; i < in_.nope; ++i)
        d_kv[i] = *d_k.at(r, i);
      for (int64_t i = 0; i < in_.v_width; ++i)
        d_kv[in_.nope + i] = *d_v.at(r, i);
      P::template rounded_row<T>(d_kv, kv_, d_kv_rows_.at(r), 0);
    }
    gemm<Machine, false>(
        count,
        c_padded_,
        kv_words_,
        rows(d_kv_rows_),
        weight_down_.from(0),
        d_latent_);
    P::interleave(padded, c_padded_, rows(latent_rows_), latent_pairs_, 0);
    P::interleave(padded, kv_padded_, rows(d_kv_rows_), d_kv_pairs_);
    P::transpose(
        padded / Machine::kPair, kv_padded_, rows(d_kv_pairs_), d_kv_columns_);
    gemm<Machine, true>(
        kv_,
        c_padded_,
        padded / Machine::kPair,
        rows(d_kv_columns_),
        latent_pairs_.from(0),
        d_weight_);
  }

  Rows<float> d_latent() const { // [rows, c]
    return d_latent_;
  }
  const float* d_weight(int64_t row) const { // [c]
    return d_weight_.at(row);
  }

 private:
  static Rows<const Word> rows(Rows<Word> panel) {
    return {panel.data, panel.row};
  }
  void load_latent(int64_t b, int64_t first, int64_t count) {
    for (int64_t r = 0; r < count; ++r) {
      P::zero(
          latent_rows_.at(r) + in_.kv_lora_rank / Machine::kPair,
          c_words_ - in_.kv_lora_rank / Machine::kPair);
      P::row(
          in_.latent.at(first + r, b, 0),
          in_.kv_lora_rank,
          latent_rows_.at(r),
          0);
    }
  }

  const AttentionInputs<T>& in_;
  int64_t kv_; // nope + v
  int64_t c_words_ = 0, c_padded_ = 0, kv_words_ = 0, kv_padded_ = 0;
  Rows<Word> weight_rows_{};       // [kv, c]
  Panels<Machine> weight_up_{};    // [c words][kv]
  Panels<Machine> weight_down_{};  // [kv words][c]
  Rows<Word> latent_rows_{};       // [rows, c]
  Panels<Machine> latent_pairs_{}; // [row words][c]
  Rows<float> expanded_{};         // [rows, kv]
  Rows<Word> d_kv_rows_{};         // [rows, kv]
  Rows<Word> d_kv_pairs_{};        // [row words, kv]
  Rows<Word> d_kv_columns_{};      // [kv, row words]
  Rows<float> d_weight_{};         // [kv, c]
  Rows<float> d_latent_{};         // [rows, c]
};

/// Rows of k (nope beside rope) and v for tokens first ... first + count - 1,
/// zeros beyond their widths and in rows count ... padded - 1.
template <class Machine, class T>
void load_keys(
    const AttentionInputs<T>& in,
    LatentHead<Machine, T>& latent,
    int64_t b,
    int64_t head,
    int64_t first,
    int64_t count,
    int64_t padded,
    Rows<Word> k,
    Rows<Word> v) {
  using P = Pack<Machine>;
  P::zero(k.data, padded * k.row);
  P::zero(v.data, padded * v.row);
  if (in.kv_lora_rank > 0) {
    latent.expand(b, first, count, k, v);
  } else {
    for (int64_t r = 0; r < count; ++r) {
      P::row(in.k_nope.at(first + r, b, head), in.nope, k.at(r), 0);
      P::row(in.v.at(first + r, b, head), in.v_width, v.at(r), 0);
    }
  }
  for (int64_t r = 0; r < count; ++r)
    P::row(in.k_pe.at(first + r, b, head), in.rope, k.at(r), in.nope);
}

} // namespace laga::kernels::blocked
