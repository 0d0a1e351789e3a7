// Which pairs a mask names, and what becomes of rows and keys that it does not.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/kernels/on_kernels.h"

namespace laga::kernels::test {
namespace {

TEST(Mask, CausalSeesKeysUpToTheQuery) {
  const std::vector<MaskSlice> mask{causal_mask(7, 9)};
  const std::vector<MaskSlice> ahead{causal_mask(7, 9, 2)};
  const std::vector<MaskSlice> all{full_mask(7, 9)};
  for (int64_t i = 0; i < 7; ++i) {
    for (int64_t j = 0; j < 9; ++j) {
      EXPECT_EQ(sees(mask, i, j), j <= i) << i << " " << j;
      EXPECT_EQ(sees(ahead, i, j), j <= i + 2) << i << " " << j;
      EXPECT_TRUE(sees(all, i, j)) << i << " " << j;
    }
  }
}

// The tests' own masks, against positions in the whole sequence.
TEST(Mask, ZigzagIsCausalInTheWholeSequence) {
  constexpr int64_t kRanks = 3, kChunk = 5;
  const auto position = [](int64_t rank, int64_t token) {
    const int64_t chunk = token < kChunk ? rank : 2 * kRanks - 1 - rank;
    return chunk * kChunk + token % kChunk;
  };
  for (int64_t rank = 0; rank < kRanks; ++rank) {
    const auto mask = zigzag_mask(kRanks, rank, kChunk);
    for (int64_t i = 0; i < 2 * kChunk; ++i) {
      for (int64_t j = 0; j < 2 * kChunk * kRanks; ++j) {
        const int64_t of_key = position(j / (2 * kChunk), j % (2 * kChunk));
        EXPECT_EQ(sees(mask, i, j), of_key <= position(rank, i))
            << rank << " " << i << " " << j;
      }
    }
  }
}

TEST(Mask, PackedIsCausalInsideADocument) {
  const auto mask = packed_mask({3, 1, 4});
  const std::vector<int> document{0, 0, 0, 1, 2, 2, 2, 2};
  for (int64_t i = 0; i < 8; ++i) {
    for (int64_t j = 0; j < 8; ++j) {
      const bool same =
          document[static_cast<size_t>(i)] == document[static_cast<size_t>(j)];
      EXPECT_EQ(sees(mask, i, j), same && j <= i) << i << " " << j;
    }
  }
}

// Every number of the tokens from `begin` on.
void expect_zeros(const Tensor& x, int64_t begin, int64_t end) {
  const auto token = static_cast<size_t>(x.batch * x.heads * x.width);
  for (size_t i = static_cast<size_t>(begin) * token;
       i < static_cast<size_t>(end) * token;
       ++i) {
    ASSERT_EQ(x.values[i], 0) << i;
  }
}

TEST_P(OnKernels, RowWithoutKeysIsZeroWithMinusInfinityAndNoGradient) {
  Case a{.name = "first_40_rows", .s_q = 100, .s_kv = 60};
  a.mask = {causal_mask(a.s_q, a.s_kv, -40)};
  for (const std::vector<int64_t>& parts :
       {std::vector<int64_t>{}, std::vector<int64_t>{23, 37}}) {
    visit(GetParam(), [&]<class T>(const Kernels<T>& k) {
      const Results results = run(k, make_problem<T>(a), {.parts = parts});
      expect_zeros(results.at("out"), 0, 40);
      expect_zeros(results.at("d_q_nope"), 0, 40);
      expect_zeros(results.at("d_q_pe"), 0, 40);
      const Tensor& lse = results.at("lse");
      for (int64_t i = 0; i < a.s_q; ++i) {
        EXPECT_EQ(std::isinf(*lse.row(i, 0, 1)), i < 40) << i;
        EXPECT_EQ(*lse.row(i, 0, 1) < -1e30, i < 40) << i;
      }
    });
  }
}

TEST_P(OnKernels, KeyThatNobodySeesHasNoGradient) {
  Case a{.name = "last_50_keys", .s_q = 100, .s_kv = 150};
  a.mask = {causal_mask(a.s_q, a.s_kv)};
  visit(GetParam(), [&]<class T>(const Kernels<T>& k) {
    const Results results = run(k, make_problem<T>(a));
    for (const char* const name : {"d_k_nope", "d_k_pe", "d_v"})
      expect_zeros(results.at(name), 100, 150);
  });
}

// So that what a masked key holds cannot matter.
TEST_P(OnKernels, KeyThatNobodySeesDoesNotChangeABit) {
  Case a{.name = "last_50_keys", .s_q = 100, .s_kv = 150};
  a.mask = {causal_mask(a.s_q, a.s_kv)};
  visit(GetParam(), [&]<class T>(const Kernels<T>& k) {
    Problem problem = make_problem<T>(a);
    const Results before = run(k, problem);
    for (Tensor* const x : {&problem.k_nope, &problem.k_pe, &problem.v}) {
      const auto begin = static_cast<size_t>(x->row_begin(100, 0, 0));
      for (size_t i = begin; i < x->values.size(); ++i)
        x->values[i] *= -512;
    }
    expect_same_bits(run(k, problem), before);
  });
}

INSTANTIATE_TEST_SUITE_P(
    Masked, OnKernels, testing::ValuesIn(all_kernels()), kernels_name);

} // namespace
} // namespace laga::kernels::test
