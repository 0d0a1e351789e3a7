#include "laga/core/check.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <type_traits>

#include "tests/core/message_of.h"

namespace laga {
namespace {

void ring_forward(int64_t s_q, int64_t s_kv) {
  LAGA_CHECK_EQ(s_q, s_kv, "q [", s_q, ",2], kv [", s_kv, ",2]");
}

void needs_ranks(bool ranks_divide_heads) {
  LAGA_CHECK(ranks_divide_heads, "Ranks that work: ", 1, ", ", 2);
}

TEST(Check, PassingChecksAreSilent) {
  EXPECT_NO_THROW(ring_forward(128, 128));
  EXPECT_NO_THROW(needs_ranks(true));
}

TEST(Check, ComparisonNamesFunctionConditionBothValuesAndContext) {
  EXPECT_EQ(
      message_of([] { ring_forward(128, 96); }),
      "[ring_forward] s_q == s_kv (128 vs 96). q [128,2], kv [96,2]");
}

TEST(Check, ConditionNamesFunctionConditionAndContext) {
  EXPECT_EQ(
      message_of([] { needs_ranks(false); }),
      "[needs_ranks] ranks_divide_heads. Ranks that work: 1, 2");
}

TEST(Check, EveryComparisonRefusesExactlyItsOpposite) {
  const auto throws = [](const auto& check) {
    try {
      check();
      return false;
    } catch (const InvalidArgument&) {
      return true;
    }
  };
  for (int a : {1, 2, 3}) {
    EXPECT_EQ(throws([&] { LAGA_CHECK_EQ(a, 2, ""); }), a != 2) << a;
    EXPECT_EQ(throws([&] { LAGA_CHECK_GE(a, 2, ""); }), a < 2) << a;
    EXPECT_EQ(throws([&] { LAGA_CHECK_GT(a, 2, ""); }), a <= 2) << a;
    EXPECT_EQ(throws([&] { LAGA_CHECK_LT(a, 2, ""); }), a >= 2) << a;
  }
}

TEST(Check, SidesAreEvaluatedOnceEvenOnFailure) {
  int left = 0;
  int right = 10;
  message_of([&] { LAGA_CHECK_EQ(++left, ++right, ""); });
  EXPECT_EQ(left, 1);
  EXPECT_EQ(right, 11);
}

TEST(Check, ContextIsOnlyBuiltOnFailure) {
  int built = 0;
  const auto context = [&built] { return ++built; };
  LAGA_CHECK(true, context());
  LAGA_CHECK_EQ(1, 1, context());
  EXPECT_EQ(built, 0);
  message_of([&] { LAGA_CHECK(false, context()); });
  EXPECT_EQ(built, 1);
}

TEST(Check, IsOneStatement) {
  bool reached_else = false;
  if (false)
    LAGA_CHECK(false, "not reached");
  else
    reached_else = true;
  EXPECT_TRUE(reached_else);
}

TEST(Check, TypesSayWhoseFaultItIs) {
  EXPECT_TRUE((std::is_base_of_v<std::invalid_argument, InvalidArgument>));
  EXPECT_TRUE((std::is_base_of_v<std::runtime_error, CommError>));
  // Neither can be caught as the other.
  EXPECT_FALSE((std::is_base_of_v<std::runtime_error, InvalidArgument>));
  EXPECT_FALSE((std::is_base_of_v<std::logic_error, CommError>));
}

} // namespace
} // namespace laga
