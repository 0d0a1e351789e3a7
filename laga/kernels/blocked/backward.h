// The backward of one head, over blocks of keys and, inside, blocks of queries.
// Everything is computed transposed, keys down and queries across:
//
//   S^T = K Q^T,  dP^T = V dO^T,  P^T = exp(scale S^T - lse),
//   dS^T = P^T (dP^T - delta),
//   dV += P^T dO,  dK += dS^T Q,  dQ^T += K^T dS^T
//
// so that P^T and dS^T are written in the layout that the next product reads,
// and nothing is transposed inside the loop.
#pragma once

#include "laga/kernels/attention.h"
#include "laga/kernels/blocked/forward.h"

namespace laga::kernels::blocked {

template <class Machine, class T>
class BackwardHead {
  using P = Pack<Machine>;
  using Real = typename Machine::Real;
  using Turns = typename Kernels<T>::Turns;
  static constexpr int64_t kPair = Machine::kPair;
  static constexpr int64_t kLanes = Machine::kLanes;
  static constexpr int64_t kQueries = 64; // columns of a query block

 public:
  BackwardHead(const BackwardParams<T>& params, void* buffer)
      : p_(params),
        widths_(params),
        key_block_(key_block(widths_)),
        scale_(static_cast<float>(params.scale) * kLog2E),
        scratch_(buffer),
        latent_(params, key_block_, /*backward=*/true, scratch_) {
    const int64_t queries = round_up(params.q_tokens, kQueries);
    const int64_t qk = widths_.qk_padded, v = widths_.v_padded;
    q_columns_ = blocks(queries, widths_.qk_words, kQueries);
    q_pairs_ = blocks(queries, kQueries / kPair, qk);
    d_out_columns_ = blocks(queries, widths_.v_words, kQueries);
    d_out_pairs_ = blocks(queries, kQueries / kPair, v);
    d_q_ = scratch_.take<float>(queries * qk);
    lse_ = scratch_.take<float>(queries);
    delta_ = scratch_.take<float>(queries);
    k_rows_ = scratch_.rows<Word>(key_block_, widths_.qk_words);
    v_rows_ = scratch_.rows<Word>(key_block_, widths_.v_words);
    k_pairs_ = scratch_.rows<Word>(key_block_ / kPair, qk);
    k_columns_ = scratch_.rows<Word>(qk, key_block_ / kPair);
    scores_ = scratch_.rows<float>(key_block_, kQueries);
    d_weights_ = scratch_.rows<float>(key_block_, kQueries);
    if constexpr (kPair == 1) {
      weights_ = {reinterpret_cast<Word*>(scores_.data), kQueries};
      d_scores_ = {reinterpret_cast<Word*>(d_weights_.data), kQueries};
    } else {
      weights_ = scratch_.rows<Word>(key_block_, kQueries / kPair);
      d_scores_ = scratch_.rows<Word>(key_block_, kQueries / kPair);
    }
    d_score_pairs_ = scratch_.panels<Machine>(key_block_ / kPair, kQueries);
    d_k_ = scratch_.rows<float>(key_block_, qk);
    d_v_ = scratch_.rows<float>(key_block_, v);
  }

  int64_t scratch_bytes() const {
    return scratch_.used();
  }
  /// Key blocks of all sequences.
  int64_t steps() const {
    return p_.batch * ((p_.k_tokens + key_block_ - 1) / key_block_);
  }

  void run(int64_t head, const Turns& turns) {
    if (p_.kv_lora_rank > 0) latent_.begin(head, /*backward=*/true);
    int64_t step = 0;
    for (int64_t b = 0; b < p_.batch; ++b) {
      pack_queries(b, head);
      for (int64_t k = 0; k < p_.k_tokens; k += key_block_) {
        const int64_t left = p_.k_tokens - k;
        const int64_t count = left < key_block_ ? left : key_block_;
        key_gradients(b, head, k, count);
        turns.wait(turns.state, step, head);
        store_keys(b, head, k, count);
        turns.done(turns.state, step, head);
        ++step;
      }
      store_queries(b, head);
    }
    if (p_.kv_lora_rank > 0) store_weight(head);
  }

 private:
  // Of each block of kQueries queries, words [k][n].
  struct Blocks {
    Panels<Machine> first;
    int64_t words; // from one block to the next
    Panels<Machine> at(int64_t q) const {
      return {first.data + q / kQueries * words, first.panel};
    }
  };
  Blocks blocks(int64_t queries, int64_t k, int64_t n) {
    constexpr int64_t kWidth = Panels<Machine>::kWidth;
    const int64_t words = k * round_up(n, kWidth);
    return {
        {scratch_.take<Word>(queries / kQueries * words), k * kWidth}, words};
  }

  // Both layouts of Q and dO, and clears dQ.
  void pack_queries(int64_t b, int64_t head) {
    // Rows are laid out where the block's keys will be.
    for (int64_t q = 0; q < p_.q_tokens; q += kQueries) {
      const int64_t left = p_.q_tokens - q;
      const int64_t rows = left < kQueries ? left : kQueries;
      P::zero(k_rows_.data, kQueries * k_rows_.row);
      P::zero(v_rows_.data, kQueries * v_rows_.row);
      for (int64_t r = 0; r < rows; ++r) {
        P::row(p_.q_nope.at(q + r, b, head), p_.nope, k_rows_.at(r), 0);
        P::row(p_.q_pe.at(q + r, b, head), p_.rope, k_rows_.at(r), p_.nope);
        P::row(p_.d_out.at(q + r, b, head), p_.v_width, v_rows_.at(r), 0);
        lse_[q + r] = *p_.lse.at(q + r, b, head) * kLog2E;
        delta_[q + r] = *p_.delta.at(q + r, b, head);
      }
      for (int64_t r = rows; r < kQueries; ++r)
        lse_[q + r] = delta_[q + r] = 0;
      pack(k_rows_, q_columns_.at(q), q_pairs_.at(q));
      pack(v_rows_, d_out_columns_.at(q), d_out_pairs_.at(q));
    }
    P::zero(d_q_, round_up(p_.q_tokens, kQueries) * widths_.qk_padded);
  }

  static void pack(
      Rows<Word> from, Panels<Machine> columns, Panels<Machine> pairs) {
    const Rows<const Word> rows{from.data, from.row};
    P::transpose(kQueries, from.row, rows, columns, 0);
    P::interleave(kQueries, from.row * kPair, rows, pairs, 0);
  }

  // dK and dV of one block of keys, and its part of dQ.
  void key_gradients(int64_t b, int64_t head, int64_t k, int64_t count) {
    load_keys(p_, latent_, b, head, k, count, key_block_, k_rows_, v_rows_);
    P::interleave(
        key_block_, widths_.qk_padded, {k_rows_.data, k_rows_.row}, k_pairs_);
    P::transpose(
        key_block_ / kPair,
        widths_.qk_padded,
        {k_pairs_.data, k_pairs_.row},
        k_columns_);
    P::zero(d_k_.data, round_up(count, kPair) * d_k_.row);
    P::zero(d_v_.data, round_up(count, kPair) * d_v_.row);
    for (const MaskSlice& slice : p_.mask) {
      const int64_t from = slice.k_begin > k ? slice.k_begin - k : 0;
      const int64_t end = slice.k_end - k;
      const int64_t to = end < count ? end : count;
      if (from >= to) continue;
      // Earlier queries see none of these keys.
      const int64_t seen = k + from - slice.causal_offset;
      const int64_t first = slice.q_begin > seen ? slice.q_begin : seen;
      for (int64_t q = first / kQueries * kQueries; q < slice.q_end;
           q += kQueries) {
        query_block(slice, k, from, to, q);
      }
    }
    multiply(d_k_, count, static_cast<float>(p_.scale));
    if (p_.kv_lora_rank > 0) {
      latent_.add_gradients(
          count, {d_k_.data, d_k_.row}, {d_v_.data, d_v_.row});
    }
  }

  // A pass of its own, so that a sum over heads adds what a single head would
  // store: a fused multiply-add would round once instead of twice.
  static void multiply(Rows<float> rows, int64_t count, float factor) {
    for (int64_t i = 0; i < count * rows.row; ++i)
      rows.data[i] *= factor;
  }

  // Keys k + from ... k + to - 1 with the queries q ... q + kQueries - 1.
  void query_block(
      const MaskSlice& slice, int64_t k, int64_t from, int64_t to, int64_t q) {
    const int64_t q_end =
        slice.q_end < q + kQueries ? slice.q_end : q + kQueries;
    const int64_t seen = q_end + slice.causal_offset - k;
    if (seen < to) to = seen;
    // Whole words of keys; what is not seen counts as zero.
    const int64_t row = from / kPair * kPair;
    const int64_t rows = round_up(to, kPair) - row;
    gemm<Machine, false>(
        rows,
        kQueries,
        widths_.qk_words,
        {k_rows_.at(row), k_rows_.row},
        q_columns_.at(q).from(0),
        {scores_.at(row), scores_.row});
    gemm<Machine, false>(
        rows,
        kQueries,
        widths_.v_words,
        {v_rows_.at(row), v_rows_.row},
        d_out_columns_.at(q).from(0),
        {d_weights_.at(row), d_weights_.row});
    const bool whole = row == from && rows == to - from && slice.q_begin <= q &&
                       q_end == q + kQueries &&
                       k + to - 1 <= q + slice.causal_offset;
    if (whole) {
      score_gradients<true>(slice, k, row, rows, q);
    } else {
      score_gradients<false>(slice, k, row, rows, q);
    }
    gemm<Machine, true>(
        rows,
        widths_.v_padded,
        kQueries / kPair,
        {weights_.at(row), weights_.row},
        d_out_pairs_.at(q).from(0),
        {d_v_.at(row), d_v_.row});
    gemm<Machine, true>(
        rows,
        widths_.qk_padded,
        kQueries / kPair,
        {d_scores_.at(row), d_scores_.row},
        q_pairs_.at(q).from(0),
        {d_k_.at(row), d_k_.row});
    gemm<Machine, true>(
        widths_.qk,
        kQueries,
        rows / kPair,
        {k_columns_.at(0, row / kPair), k_columns_.row},
        d_score_pairs_.from(row / kPair),
        {d_q_ + q * widths_.qk_padded, kQueries});
  }

  // Weights P^T and gradients dS^T of the scores as operands, dS^T in both
  // layouts.
  template <bool kWhole>
  void score_gradients(
      const MaskSlice& slice, int64_t k, int64_t row, int64_t rows, int64_t q) {
    for (int64_t r = row; r < row + rows; r += kPair) {
      int32_t first[kPair], last[kPair];
      for (int64_t u = 0; u < kPair; ++u)
        visible_queries(slice, k + r + u, q, first[u], last[u]);
      for (int64_t c = 0; c < kQueries; c += kLanes) {
        const Real lse = Machine::load(lse_ + q + c);
        const Real delta = Machine::load(delta_ + q + c);
        Real d_score[kPair];
#pragma GCC unroll 2
        for (int64_t u = 0; u < kPair; ++u) {
          Real weight =
              Machine::exp2(Machine::load(scores_.at(r + u, c)) * scale_ - lse);
          d_score[u] =
              weight * (Machine::load(d_weights_.at(r + u, c)) - delta);
          if constexpr (!kWhole) {
            const auto at = static_cast<int32_t>(c);
            weight = Machine::select(weight, Real{}, at, first[u], last[u]);
            d_score[u] =
                Machine::select(d_score[u], Real{}, at, first[u], last[u]);
          }
          Machine::store_operands(weights_.at(r + u, c / kPair), weight);
          Machine::store_operands(d_scores_.at(r + u, c / kPair), d_score[u]);
        }
        Word* pairs = d_score_pairs_.at(r / kPair, c);
        if constexpr (kPair == 1) {
          Machine::store(pairs, d_score[0]);
        } else {
          Machine::store_pairs(pairs, d_score[0], d_score[1]);
        }
      }
    }
  }

  // The queries of the block at q that see `key`: first ... last - 1.
  static void visible_queries(
      const MaskSlice& slice,
      int64_t key,
      int64_t q,
      int32_t& first,
      int32_t& last) {
    first = last = 0;
    if (key < slice.k_begin || key >= slice.k_end) return;
    const int64_t seen = key - slice.causal_offset;
    const int64_t from = (slice.q_begin > seen ? slice.q_begin : seen) - q;
    const int64_t to = slice.q_end - q;
    first = static_cast<int32_t>(
        from < 0          ? 0
        : from > kQueries ? kQueries
                          : from);
    last = static_cast<int32_t>(to > kQueries ? kQueries : to);
  }

  void store_keys(int64_t b, int64_t head, int64_t k, int64_t count) {
    for (int64_t r = 0; r < count; ++r)
      put(p_.d_k_pe, k + r, b, head, d_k_.at(r, p_.nope), p_.rope);
    if (p_.kv_lora_rank == 0) {
      for (int64_t r = 0; r < count; ++r) {
        put(p_.d_k_nope, k + r, b, head, d_k_.at(r), p_.nope);
        put(p_.d_v, k + r, b, head, d_v_.at(r), p_.v_width);
      }
    } else {
      for (int64_t r = 0; r < count; ++r) {
        add_row(
            latent_.d_latent().at(r),
            p_.kv_lora_rank,
            p_.d_latent.at(k + r, b, 0));
      }
    }
  }

  void store_queries(int64_t b, int64_t head) {
    for (int64_t q = 0; q < p_.q_tokens; q += kQueries) {
      const int64_t left = p_.q_tokens - q;
      // Rows of dQ, where dK's block was.
      P::transpose(
          widths_.qk_padded,
          kQueries,
          {reinterpret_cast<const Word*>(d_q_ + q * widths_.qk_padded),
           kQueries},
          {reinterpret_cast<Word*>(d_k_.data), d_k_.row});
      multiply(d_k_, kQueries, static_cast<float>(p_.scale));
      for (int64_t r = 0; r < (left < kQueries ? left : kQueries); ++r) {
        put(p_.d_q_nope, q + r, b, head, d_k_.at(r), p_.nope);
        put(p_.d_q_pe, q + r, b, head, d_k_.at(r, p_.nope), p_.rope);
      }
    }
  }

  void store_weight(int64_t head) {
    const int64_t rows = p_.nope + p_.v_width;
    for (int64_t r = 0; r < rows; ++r) {
      P::result_row(
          latent_.d_weight(r),
          p_.kv_lora_rank,
          1,
          p_.d_kv_b + (head * rows + r) * p_.d_kv_b_row);
    }
  }

  static void add_row(const float* from, int64_t width, float* to) {
    for (int64_t i = 0; i < width; ++i)
      to[i] += from[i];
  }
  static void put(
      const GradientView<T>& gradient,
      int64_t token,
      int64_t b,
      int64_t head,
      const float* from,
      int64_t width) {
    if (gradient.store.data) {
      P::result_row(from, width, 1, gradient.store.at(token, b, head));
    } else {
      add_row(from, width, gradient.add.at(token, b, head));
    }
  }

  const BackwardParams<T>& p_;
  Widths<Machine> widths_;
  int64_t key_block_;
  float scale_; // of the scores, for powers of two
  Scratch scratch_;
  LatentHead<Machine, T> latent_;
  // Of the head's queries, by blocks of kQueries:
  Blocks q_columns_;     // [qk words][kQueries]
  Blocks q_pairs_;       // [kQueries words][qk]
  Blocks d_out_columns_; // [v words][kQueries]
  Blocks d_out_pairs_;   // [kQueries words][v]
  float* d_q_;           // [block][qk][kQueries]
  float* lse_;           // [s_q], for powers of two
  float* delta_;         // [s_q]
  // Of a block of keys:
  Rows<Word> k_rows_;    // [keys, qk]
  Rows<Word> v_rows_;    // [keys, v]
  Rows<Word> k_pairs_;   // [key words, qk]
  Rows<Word> k_columns_; // [qk, key words]
  Rows<float> d_k_;      // [keys, qk]
  Rows<float> d_v_;      // [keys, v]
  // Of a block of keys and queries; operands lie in the floats' place where
  // words are floats:
  Rows<float> scores_;            // [keys, kQueries]
  Rows<float> d_weights_;         // [keys, kQueries]
  Rows<Word> weights_;            // [keys, kQueries]
  Rows<Word> d_scores_;           // [keys, kQueries]
  Panels<Machine> d_score_pairs_; // [key words][kQueries]
};

} // namespace laga::kernels::blocked
