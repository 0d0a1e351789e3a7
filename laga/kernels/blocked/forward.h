// The forward of one head: blocks of queries, each running over its keys in
// blocks, with an online softmax (FlashAttention-2, arXiv 2307.08691).
//
//   keys and values packed once a head: K^T in panels as wide as a GEMM tile,
//   V with rows interleaved. Per block: S = Q K^T; one pass for the rows'
//   maxima, one that exponentiates, sums and converts; O += P V. O is rescaled
//   only where a maximum grew.
#pragma once

#include "laga/kernels/blocked/keys.h"

namespace laga::kernels::blocked {

inline constexpr float kLog2E = 1.44269504088896341f;
inline constexpr float kLn2 = 0.693147180559945309f;

template <class Machine, class T>
class ForwardHead {
  using P = Pack<Machine>;
  using Real = typename Machine::Real;
  static constexpr int64_t kPair = Machine::kPair;
  static constexpr int64_t kLanes = Machine::kLanes;
  static constexpr int64_t kTileRows = Machine::kTileRows;
  static constexpr int64_t kPanel = Panels<Machine>::kWidth;
  static constexpr int64_t kQueries = 64; // rows of a query block
  static constexpr int64_t kLoad = 64;    // keys packed at a time
  static_assert(kLoad % kPanel == 0 && kPanel % (2 * kLanes) == 0);

 public:
  ForwardHead(const ForwardParams<T>& params, void* buffer)
      : p_(params),
        widths_(params),
        key_block_(key_block(widths_)),
        scale_(static_cast<float>(params.scale) * kLog2E),
        scratch_(buffer),
        latent_(params, kLoad, /*backward=*/false, scratch_) {
    const int64_t keys = round_up(params.k_tokens, kLoad);
    k_columns_ = scratch_.panels<Machine>(widths_.qk_words, keys);
    v_pairs_ = scratch_.panels<Machine>(keys / kPair, widths_.v_padded);
    k_rows_ = scratch_.rows<Word>(kLoad, widths_.qk_words);
    v_rows_ = scratch_.rows<Word>(kLoad, widths_.v_words);
    q_rows_ = scratch_.rows<Word>(kQueries, widths_.qk_words);
    scores_ = scratch_.rows<float>(kQueries, key_block_);
    if constexpr (kPair == 1) {
      weights_ = {reinterpret_cast<Word*>(scores_.data), key_block_};
    } else {
      weights_ = scratch_.rows<Word>(kQueries, key_block_ / kPair);
    }
    out_ = scratch_.rows<float>(kQueries, widths_.v_padded);
    largest_ = scratch_.take<float>(kQueries);
    total_ = scratch_.take<float>(kQueries);
  }

  int64_t scratch_bytes() const {
    return scratch_.used();
  }

  void run(int64_t head) {
    if (p_.kv_lora_rank > 0) latent_.begin(head, /*backward=*/false);
    for (int64_t b = 0; b < p_.batch; ++b) {
      pack_keys(b, head);
      for (int64_t q = 0; q < p_.q_tokens; q += kQueries)
        query_block(b, head, q);
    }
  }

 private:
  void pack_keys(int64_t b, int64_t head) {
    for (int64_t first = 0; first < p_.k_tokens; first += kLoad) {
      const int64_t left = p_.k_tokens - first;
      load_keys(
          p_,
          latent_,
          b,
          head,
          first,
          left < kLoad ? left : kLoad,
          kLoad,
          k_rows_,
          v_rows_);
      P::transpose(
          kLoad,
          widths_.qk_words,
          {k_rows_.data, k_rows_.row},
          k_columns_,
          first);
      P::interleave(
          kLoad,
          widths_.v_padded,
          {v_rows_.data, v_rows_.row},
          v_pairs_,
          first / kPair);
    }
  }

  // Rows first_row ... last_row - 1 of the block of queries at q see keys
  // k_begin ... min(k_end, own position + offset + 1) - 1.
  struct Work {
    int64_t q, first_row, last_row, k_begin, k_end, offset;
    // Of a key block at k: the columns that a row sees.
    int64_t from(int64_t k) const {
      return k_begin > k ? k_begin - k : 0;
    }
    int64_t to(int64_t row, int64_t k) const {
      const int64_t end = q + row + offset + 1;
      return (end < k_end ? end : k_end) - k;
    }
  };

  void query_block(int64_t b, int64_t head, int64_t q) {
    const int64_t left = p_.q_tokens - q;
    const int64_t rows = left < kQueries ? left : kQueries;
    begin_rows(b, head, q, rows);
    for (const MaskSlice& slice : p_.mask) {
      const int64_t last = slice.q_end - q;
      const Work work{
          q,
          slice.q_begin > q ? slice.q_begin - q : 0,
          last < rows ? last : rows,
          slice.k_begin,
          slice.k_end,
          slice.causal_offset};
      if (work.first_row >= work.last_row) continue;
      const int64_t end = work.to(work.last_row - 1, 0);
      for (int64_t k = slice.k_begin / kPanel * kPanel; k < end;
           k += key_block_) {
        const int64_t width = round_up(end - k, kPanel);
        attend(work, k, width < key_block_ ? width : key_block_);
      }
    }
    finish_rows(b, head, q, rows);
  }

  void begin_rows(int64_t b, int64_t head, int64_t q, int64_t rows) {
    P::zero(q_rows_.data, kQueries * q_rows_.row);
    P::zero(out_.data, kQueries * out_.row);
    for (int64_t r = 0; r < rows; ++r) {
      P::row(p_.q_nope.at(q + r, b, head), p_.nope, q_rows_.at(r), 0);
      P::row(p_.q_pe.at(q + r, b, head), p_.rope, q_rows_.at(r), p_.nope);
      largest_[r] = -__builtin_inff();
      total_[r] = 0;
      if (!p_.running.data) continue;
      const float lse = *p_.lse.at(q + r, b, head);
      if (lse == -__builtin_inff()) continue;
      largest_[r] = lse * kLog2E;
      total_[r] = 1;
      const float* before = p_.running.at(q + r, b, head);
      for (int64_t i = 0; i < p_.v_width; ++i)
        *out_.at(r, i) = before[i];
    }
  }

  void finish_rows(int64_t b, int64_t head, int64_t q, int64_t rows) {
    for (int64_t r = 0; r < rows; ++r) {
      const bool seen = total_[r] != 0; // NaN counts as seen
      const float factor = seen ? 1 / total_[r] : 0;
      if (p_.running.data) {
        P::result_row(
            out_.at(r), p_.v_width, factor, p_.running.at(q + r, b, head));
      } else {
        P::result_row(
            out_.at(r), p_.v_width, factor, p_.out.at(q + r, b, head));
      }
      *p_.lse.at(q + r, b, head) =
          seen ? (largest_[r] + __builtin_log2f(total_[r])) * kLn2
               : -__builtin_inff();
    }
  }

  // The columns that the GEMMs compute for a row: what the last row of its tile
  // sees, in whole panels. So a block on the diagonal costs little more than
  // the half that counts.
  static int64_t tile_width(
      const Work& work, int64_t row, int64_t k, int64_t width) {
    int64_t last = row + kTileRows - 1;
    if (last >= work.last_row) last = work.last_row - 1;
    const int64_t seen = work.to(last, k);
    return seen <= 0 ? 0 : seen >= width ? width : round_up(seen, kPanel);
  }

  // One block of queries with keys k ... k + width - 1.
  void attend(const Work& work, int64_t k, int64_t width) {
    for (int64_t panel = 0; panel < width; panel += kPanel) {
      // Tiles of rows that end before they see the panel are left out.
      const int64_t ahead = k + panel - (work.q + work.first_row + work.offset);
      const int64_t row =
          work.first_row + (ahead > 0 ? ahead / kTileRows * kTileRows : 0);
      if (row >= work.last_row) break;
      gemm<Machine, false>(
          work.last_row - row,
          kPanel,
          widths_.qk_words,
          {q_rows_.at(row), q_rows_.row},
          {k_columns_.at(0, k + panel), k_columns_.panel},
          {scores_.at(row, panel), scores_.row});
    }
    const bool whole = tile_width(work, work.first_row, k, width) == width;
    const int64_t step =
        whole ? work.last_row - work.first_row : int64_t{kTileRows};
    for (int64_t row = work.first_row; row < work.last_row; row += step) {
      const int64_t columns = whole ? width : tile_width(work, row, k, width);
      const int64_t rows =
          work.last_row - row < step ? work.last_row - row : step;
      if (columns == 0) continue;
      for (int64_t r = row; r < row + rows; ++r)
        softmax_row(r, columns, work.from(k), work.to(r, k));
      gemm<Machine, true>(
          rows,
          widths_.v_padded,
          columns / kPair,
          {weights_.at(row), weights_.row},
          v_pairs_.from(k / kPair),
          {out_.at(row), out_.row});
    }
  }

  // Scores of a row -> exp2(scale score - largest) as operands, of which it
  // sees columns from ... to - 1; the others become 0.
  void softmax_row(int64_t r, int64_t columns, int64_t from, int64_t to) {
    float* scores = scores_.at(r);
    Word* weights = weights_.at(r);
    if (to <= from) {
      P::zero(weights, columns / kPair);
      return;
    }
    for (int64_t c = 0; c < from; ++c)
      scores[c] = -__builtin_inff();
    for (int64_t c = to; c < columns; ++c)
      scores[c] = -__builtin_inff();
    Real top0 = Machine::all(-__builtin_inff()), top1 = top0;
    for (int64_t c = 0; c < columns; c += 2 * kLanes) {
      top0 = Machine::larger(top0, Machine::load(scores + c));
      top1 = Machine::larger(top1, Machine::load(scores + c + kLanes));
    }
    raise_largest(r, Machine::largest(Machine::larger(top0, top1)) * scale_);
    const Real minus_largest = Machine::all(-largest_[r]);
    const Real scale = Machine::all(scale_);
    Real sum0{}, sum1{};
    for (int64_t c = 0; c < columns; c += 2 * kLanes) {
      const Real e0 =
          Machine::exp2(Machine::load(scores + c) * scale + minus_largest);
      const Real e1 = Machine::exp2(
          Machine::load(scores + c + kLanes) * scale + minus_largest);
      sum0 += e0;
      sum1 += e1;
      Machine::store_operands(weights + c / kPair, e0);
      Machine::store_operands(weights + (c + kLanes) / kPair, e1);
    }
    total_[r] += Machine::sum(sum0 + sum1);
  }

  void raise_largest(int64_t r, float candidate) {
    if (!(candidate > largest_[r])) return;
    const float factor = __builtin_exp2f(largest_[r] - candidate);
    largest_[r] = candidate;
    total_[r] *= factor;
    for (int64_t c = 0; c < widths_.v_padded; c += kLanes)
      Machine::store(out_.at(r, c), Machine::load(out_.at(r, c)) * factor);
  }

  const ForwardParams<T>& p_;
  Widths<Machine> widths_;
  int64_t key_block_;
  float scale_; // of the scores, for powers of two
  Scratch scratch_;
  LatentHead<Machine, T> latent_;
  Panels<Machine> k_columns_; // [qk words][s_kv]
  Panels<Machine> v_pairs_;   // [s_kv words][v]
  Rows<Word> k_rows_;         // [kLoad, qk]
  Rows<Word> v_rows_;         // [kLoad, v]
  Rows<Word> q_rows_;         // [kQueries, qk]
  Rows<float> scores_;        // [kQueries, key_block]
  Rows<Word> weights_; // [kQueries, key_block], in scores_ where words are
                       // floats
  Rows<float> out_;    // [kQueries, v], not yet divided by total
  float* largest_;     // [kQueries], of scale * score
  float* total_;       // [kQueries]
};

} // namespace laga::kernels::blocked
