#include "tests/kernels/problem.h"

#include <algorithm>
#include <cmath>
#include <random>

namespace laga::kernels::test {

namespace {

template <class T>
Tensor random_tensor(
    std::mt19937_64& random,
    int64_t tokens,
    int64_t batch,
    int64_t heads,
    int64_t width,
    double size = 1) {
  Tensor x(tokens, batch, heads, width);
  for (double& value : x.values) {
    // Uniform with variance size^2. Not std::uniform_real_distribution, whose
    // numbers differ between standard libraries.
    const double unit = std::ldexp(static_cast<double>(random() >> 11), -53);
    value = rounded_to<T>(size * std::sqrt(12) * (unit - 0.5));
  }
  return x;
}

} // namespace

template <class T>
Problem make_problem(const Case& a, uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto width = static_cast<double>(a.nope + a.rope);
  const int64_t key_heads = a.keys_are_values ? 1 : a.h;
  Problem p;
  p.sizes = a;
  p.scale = a.score_size / std::sqrt(width);
  p.q_nope = random_tensor<T>(random, a.s_q, a.b, a.h, a.nope);
  p.q_pe = random_tensor<T>(random, a.s_q, a.b, a.h, a.rope);
  p.k_pe =
      random_tensor<T>(random, a.s_kv, a.b, a.shared_k_pe ? 1 : a.h, a.rope);
  if (a.c > 0) {
    const double of_weights = 1 / std::sqrt(static_cast<double>(a.c));
    p.latent = random_tensor<T>(random, a.s_kv, a.b, 1, a.c);
    p.kv_b =
        random_tensor<T>(random, a.h * (a.nope + a.v), 1, 1, a.c, of_weights);
  } else {
    p.k_nope = random_tensor<T>(random, a.s_kv, a.b, key_heads, a.nope);
    p.v = a.keys_are_values
              ? p.k_nope
              : random_tensor<T>(random, a.s_kv, a.b, key_heads, a.v);
  }
  p.d_out = random_tensor<T>(random, a.s_q, a.b, a.h, a.v);
  return p;
}

template Problem make_problem<Bf16>(const Case&, uint64_t);
template Problem make_problem<float>(const Case&, uint64_t);
template Problem make_problem<double>(const Case&, uint64_t);

bool sees(const std::vector<MaskSlice>& mask, int64_t i, int64_t j) {
  for (const MaskSlice& s : mask) {
    if (s.q_begin <= i && i < s.q_end && s.k_begin <= j && j < s.k_end &&
        j <= i + s.causal_offset) {
      return true;
    }
  }
  return false;
}

std::vector<MaskSlice> zigzag_mask(int64_t ranks, int64_t rank, int64_t chunk) {
  const std::vector<int64_t> q_chunks{rank, 2 * ranks - 1 - rank};
  std::vector<int64_t> k_chunks;
  for (int64_t r = 0; r < ranks; ++r) {
    k_chunks.push_back(r);
    k_chunks.push_back(2 * ranks - 1 - r);
  }
  std::vector<MaskSlice> mask;
  for (size_t q = 0; q < q_chunks.size(); ++q) {
    for (size_t k = 0; k < k_chunks.size(); ++k) {
      if (k_chunks[k] > q_chunks[q]) continue;
      const auto i = static_cast<int64_t>(q) * chunk;
      const auto j = static_cast<int64_t>(k) * chunk;
      const bool diagonal = k_chunks[k] == q_chunks[q];
      mask.push_back(
          {i, i + chunk, j, j + chunk, diagonal ? j - i : MaskSlice::kFull});
    }
  }
  return mask;
}

std::vector<MaskSlice> packed_mask(const std::vector<int64_t>& lengths) {
  std::vector<MaskSlice> mask;
  int64_t begin = 0;
  for (const int64_t length : lengths) {
    mask.push_back({begin, begin + length, begin, begin + length, 0});
    begin += length;
  }
  return mask;
}

std::vector<MaskSlice> cut_keys(
    const std::vector<MaskSlice>& mask, int64_t begin, int64_t end) {
  std::vector<MaskSlice> cut;
  for (MaskSlice slice : mask) {
    slice.k_begin = std::clamp(slice.k_begin, begin, end) - begin;
    slice.k_end = std::clamp(slice.k_end, begin, end) - begin;
    slice.causal_offset -= begin;
    cut.push_back(slice);
  }
  return cut;
}

std::ostream& operator<<(std::ostream& out, const Case& a) {
  out << a.name << ": s_q " << a.s_q << ", s_kv " << a.s_kv << ", b " << a.b
      << ", h " << a.h << ", nope " << a.nope << ", rope " << a.rope << ", v "
      << a.v << ", c " << a.c << ", shared_k_pe " << a.shared_k_pe
      << ", keys_are_values " << a.keys_are_values << ", layout "
      << static_cast<int>(a.layout) << ", add " << a.add << ", score_size "
      << a.score_size << ", mask";
  for (const MaskSlice& s : a.mask) {
    out << " {" << s.q_begin << ", " << s.q_end << ", " << s.k_begin << ", "
        << s.k_end << ", " << s.causal_offset << "}";
  }
  return out;
}

} // namespace laga::kernels::test
