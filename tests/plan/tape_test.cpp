#include "laga/plan/tape.h"

#include "laga/plan/memory.h"

#include <gtest/gtest.h>

namespace laga {
namespace {

TEST(Tape, ATensorDiesWithItsLastHandle) {
  TapeRecorder recorder;
  auto a = recorder.make("a", {{"S", 10}, {"w", 3}}, 2); // moment 0
  auto copy = a;
  auto b = recorder.make("b", {{"S", 5}}, 4); // 1
  a.reset();
  recorder.end_forward(); // 2
  copy.reset();
  const auto c = recorder.make("c", {{"S", 25}}, 4); // 3
  const MemoryTape tape = recorder.take();
  EXPECT_EQ(tape.saved_bytes(), 60 + 20);
  EXPECT_EQ(tape.bytes_at(0), 60);
  EXPECT_EQ(tape.peak(), 3);
  EXPECT_EQ(tape.peak_bytes(), 20 + 100);
  ASSERT_EQ(tape.alive_at(3).size(), 2U);
  EXPECT_EQ(tape.alive_at(3)[1].name, "c");
}

int64_t saved(const char* form, const char* inner, int64_t seq) {
  return predict_memory(
             load_config("deepseek-v3"),
             find_form(form),
             inner,
             {seq, 1, 8, Dtype::kBf16})
      .saved_bytes();
}

// The review's falsifier: with a kernel that is truly fused, what Absorbed
// keeps beyond Explicit is linear in S. Per token and head of a rank: absorbed
// queries and output c + c and its two copies less kv and one output; the
// gathered latent instead of k_pe for every head and the own shard.
TEST(Tape, FusedAbsorbedExceedsExplicitLinearly) {
  const auto excess = [](int64_t seq) {
    return saved("absorbed", "fused", seq) - saved("explicit", "fused", seq);
  };
  EXPECT_EQ(2 * excess(4096), excess(8192));
  EXPECT_EQ(4 * excess(4096), excess(16384));
  const int64_t heads = 16, c = 512, nope = 128, v = 128, r = 64;
  const int64_t a_token =
      heads * (2 * c - (nope + v) - v - r) + (c + r) - (c + r) / 8;
  EXPECT_EQ(excess(4096), 4096 * a_token * 2);
}

// Scores are kept by eager only: with any other, memory is linear in S.
TEST(Tape, EagerAloneIsQuadratic) {
  EXPECT_EQ(2 * saved("laga", "stream", 4096), saved("laga", "stream", 8192));
  EXPECT_EQ(
      saved("laga", "eager", 8192) - 2 * saved("laga", "eager", 4096),
      16LL * (8192LL * 8192 - 2LL * 4096 * 4096) * 2);
}

} // namespace
} // namespace laga
