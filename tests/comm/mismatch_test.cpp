// Ranks that call different things: every rank raises and names both calls, on
// any backend.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/comm/backend.h"
#include "tests/comm/exchange.h"

namespace laga::test {
namespace {

// The last rank does something else than the others.
class Mismatch : public testing::TestWithParam<int> {
 protected:
  RunOptions options() const {
    return {.ranks = GetParam()};
  }
  bool odd_one_out(const Comm& comm) const {
    return comm->rank() == GetParam() - 1;
  }
  std::string both(const std::string& first, const std::string& last) const {
    return detail::concat(
        "rank 0 calls ", first, ", rank ", GetParam() - 1, " calls ", last);
  }
};

std::vector<int> several_ranks() {
  std::vector<int> counts = rank_counts();
  std::erase(counts, 1);
  return counts;
}

INSTANTIATE_TEST_SUITE_P(Ranks, Mismatch, testing::ValuesIn(several_ranks()));
// One process has nobody to disagree with.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Mismatch);

TEST_P(Mismatch, OfTheLabelRaisesEverywhere) {
  const auto errors = errors_on_ranks(options(), [&](const Comm& comm) {
    gather_and_wait(comm, "k_pe");
    gather_and_wait(comm, odd_one_out(comm) ? "q" : "latent");
  });
  EXPECT_TRUE(all_contain(
      errors,
      both("forward/latent all_gather (#2)", "forward/q all_gather (#2)") +
          " of world"));
}

// A backend may have room for so much of a name in what it sends.
TEST_P(Mismatch, AtTheEndOfALongLabelRaisesEverywhere) {
  const std::string start(5000, 'x');
  const auto errors = errors_on_ranks(options(), [&](const Comm& comm) {
    gather_and_wait(comm, start + "a");
    gather_and_wait(comm, start + (odd_one_out(comm) ? "b" : "c"));
  });
  EXPECT_TRUE(all_contain(errors, "rank 0 calls forward/xxx"));
}

TEST_P(Mismatch, OfThePhaseRaisesEverywhere) {
  const auto errors = errors_on_ranks(options(), [&](const Comm& comm) {
    comm->barrier(
        {odd_one_out(comm) ? Phase::kForward : Phase::kBackward, "step"});
  });
  EXPECT_TRUE(all_contain(
      errors, both("backward/step barrier (#1)", "forward/step barrier (#1)")));
}

TEST_P(Mismatch, OfTheOperationRaisesEverywhere) {
  const auto errors = errors_on_ranks(options(), [&](const Comm& comm) {
    if (odd_one_out(comm)) {
      comm->barrier(forward("q"));
    } else {
      gather_and_wait(comm, "q");
    }
  });
  EXPECT_TRUE(all_contain(
      errors, both("forward/q all_gather (#1)", "forward/q barrier (#1)")));
}

TEST_P(Mismatch, OfTheNumberOfCallsRaisesEverywhere) {
  const auto errors = errors_on_ranks(options(), [&](const Comm& comm) {
    if (!odd_one_out(comm)) gather_and_wait(comm, "k_pe");
    gather_and_wait(comm, "latent");
  });
  EXPECT_TRUE(all_contain(
      errors,
      both("forward/k_pe all_gather (#1)", "forward/latent all_gather (#1)")));
}

TEST_P(Mismatch, OfTheSizesRaisesEverywhere) {
  const int last = GetParam() - 1;
  const auto errors = errors_on_ranks(options(), [&](const Comm& comm) {
    const int me = comm->rank();
    // What the last rank sends to the first is not what that expects.
    const auto bytes = [&](int source, int destination) {
      const bool odd = source == last && destination == 0 && me == last;
      return int64_t{odd ? 64 : 32};
    };
    Exchange exchange(comm, "q", bytes);
    exchange.work->wait();
  });
  EXPECT_TRUE(all_contain(
      errors,
      detail::concat(
          "rank ",
          last,
          " sends 64 bytes to rank 0, which expects 32: forward/q all_to_all "
          "(#1) of world")));
}

TEST_P(Mismatch, OfASplitRaisesEverywhere) {
  const auto errors = errors_on_ranks(options(), [&](const Comm& comm) {
    (void)comm->split(0, odd_one_out(comm) ? "dp" : "sp");
  });
  EXPECT_TRUE(all_contain(
      errors,
      both(
          "forward/split:sp all_gather (#1)",
          "forward/split:dp all_gather (#1)")));
}

// In a group, the ranks outside of it are told as well.
TEST_P(Mismatch, InAGroupRaisesInItsParent) {
  if (GetParam() < 4) GTEST_SKIP() << "a group of two and ranks outside of it";
  const auto errors = errors_on_ranks(options(), [&](const Comm& comm) {
    const Comm half = comm->split(comm->rank() < 2 ? 0 : 1, "half");
    if (comm->rank() < 2) {
      gather_and_wait(half, comm->rank() == 0 ? "q" : "latent");
    }
    comm->barrier(forward("end"));
  });
  EXPECT_TRUE(all_contain(
      errors,
      "rank 0 calls forward/q all_gather (#1), rank 1 calls forward/latent "
      "all_gather (#1) of half"));
}

TEST_P(Mismatch, RaisesTheSameReasonInEveryLaterCall) {
  const auto errors = errors_on_ranks(options(), [&](const Comm& comm) {
    try {
      gather_and_wait(comm, odd_one_out(comm) ? "q" : "latent");
    } catch (const CommError&) {
    }
    comm->barrier(forward("next"));
  });
  for (const auto& [rank, error] : errors) {
    EXPECT_EQ(
        error,
        detail::concat(
            "[barrier] rank ",
            rank,
            " in forward/next barrier (#2) of world: ",
            both("forward/latent all_gather (#1)", "forward/q all_gather (#1)"),
            " of world"));
  }
}

TEST_P(Mismatch, IsFoundInTransfersUnderWay) {
  const auto errors = errors_on_ranks(options(), [&](const Comm& comm) {
    const auto bytes = [](int, int) { return int64_t{100000}; };
    Exchange first(comm, "first", bytes);
    Exchange second(comm, odd_one_out(comm) ? "other" : "second", bytes);
    Exchange third(comm, "third", bytes);
    third.work->wait();
    first.work->wait();
    second.work->wait();
  });
  EXPECT_TRUE(all_contain(
      errors,
      both("forward/second all_to_all (#2)", "forward/other all_to_all (#2)")));
}

TEST_P(Mismatch, AnAbortWakesTheWaiting) {
  const auto errors = errors_on_ranks(options(), [&](const Comm& comm) {
    gather_and_wait(comm, "q");
    if (odd_one_out(comm)) {
      comm->abort("the user pressed stop");
    }
    gather_and_wait(comm, "latent");
  });
  for (const auto& [rank, error] : errors) {
    // In the second call or, on a slow rank, still in the first.
    EXPECT_TRUE(contains(error, detail::concat("rank ", rank, " in forward/")));
    EXPECT_TRUE(contains(error, " of world: the user pressed stop"));
  }
}

} // namespace
} // namespace laga::test
