// What a test asks the kernels for: sizes, masks, who shares what, and numbers.
#pragma once

#include "laga/kernels/attention.h"

#include <ostream>

#include "tests/kernels/tensor.h"

namespace laga::kernels::test {

/// Where the numbers lie, in all tensors of a problem.
enum class Layout {
  kDense,      // [s, b, h, w]
  kPadded,     // the same with odd gaps everywhere, from an odd address
  kHeadsFirst, // [b, h, s, w], with gaps
};

struct Case {
  std::string name;
  int64_t s_q = 65, s_kv = 65;
  int64_t b = 1, h = 2;
  int64_t nope = 5, rope = 3, v = 7;
  int64_t c = 0; // kv_lora_rank; > 0: keys and values are made of the latent
  std::vector<MaskSlice> mask = {};
  bool shared_k_pe = true;
  /// Absorbed: one memory for k_nope and v of all heads; nope equals v.
  bool keys_are_values = false;
  Layout layout = Layout::kPadded;
  bool add = false;      // gradients are added to what is there, where they may
  double score_size = 1; // root mean square of the scores, roughly
};

std::ostream& operator<<(std::ostream& out, const Case& a_case);

/// A case's numbers, all of them numbers of T. Those not used are empty.
struct Problem {
  Case sizes;
  double scale = 1;
  Tensor q_nope, q_pe;    // [s_q, b, h, nope], [s_q, b, h, rope]
  Tensor k_nope, k_pe, v; // [s_kv, b, h or 1, nope], [..., rope], [..., v]
  Tensor latent;          // [s_kv, b, 1, c]
  Tensor kv_b;            // [h (nope + v), 1, 1, c]
  Tensor d_out;           // [s_q, b, h, v]
};

/// Equal seeds give equal numbers, up to the rounding to T.
template <class T>
Problem make_problem(const Case& a_case, uint64_t seed = 1);

/// Whether query i sees key j, asked of every slice.
bool sees(const std::vector<MaskSlice>& mask, int64_t i, int64_t j);

/// A sequence of `ranks` zigzag shares as rank `rank` has it: its queries are
/// chunks rank and 2 ranks - 1 - rank, the keys all ranks' chunks, rank by
/// rank. One slice for each pair of chunks that sees anything.
std::vector<MaskSlice> zigzag_mask(int64_t ranks, int64_t rank, int64_t chunk);

/// Causal inside each document; lengths in order.
std::vector<MaskSlice> packed_mask(const std::vector<int64_t>& lengths);

/// The mask for the keys [begin, end) alone.
std::vector<MaskSlice> cut_keys(
    const std::vector<MaskSlice>& mask, int64_t begin, int64_t end);

} // namespace laga::kernels::test
