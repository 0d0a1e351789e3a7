// What moves, where it lands and what is counted, for any number of ranks, on
// any backend.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "tests/comm/backend.h"
#include "tests/comm/exchange.h"

namespace laga::test {
namespace {

struct Case {
  int ranks;
  int64_t bytes;
};

class Transfers : public testing::TestWithParam<Case> {
 protected:
  int ranks() const {
    return GetParam().ranks;
  }
  int64_t bytes() const {
    return GetParam().bytes;
  }
  RunOptions options() const {
    return {.ranks = ranks()};
  }
  // Differs for every pair, 0 for some.
  int64_t uneven(int source, int destination) const {
    return bytes() * ((source * 3 + destination * 5) % 7) / 3;
  }
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const int ranks : rank_counts()) {
    for (const int64_t bytes : {0, 1, 1001, 60000}) {
      all.push_back({ranks, bytes});
    }
  }
  return all;
}

std::string case_name(const testing::TestParamInfo<Case>& info) {
  return detail::concat(info.param.ranks, "x", info.param.bytes);
}

INSTANTIATE_TEST_SUITE_P(
    RanksAndBytes, Transfers, testing::ValuesIn(cases()), case_name);

TEST_P(Transfers, AllToAllMovesEqualParts) {
  on_ranks(options(), [&](const Comm& comm) {
    Exchange exchange(comm, "q", [&](int, int) { return bytes(); });
    exchange.wait_and_check(comm->rank());
  });
}

TEST_P(Transfers, AllToAllMovesUnevenParts) {
  on_ranks(options(), [&](const Comm& comm) {
    Exchange exchange(comm, "q", [&](int s, int d) { return uneven(s, d); });
    exchange.wait_and_check(comm->rank());
  });
}

void check_gather(const Comm& comm, const Layout& from, bool in_place) {
  const int me = comm->rank();
  const Part own = from.parts[static_cast<size_t>(me)];
  Buffer all(static_cast<size_t>(from.bytes), kUntouched);
  Buffer apart(static_cast<size_t>(own.bytes));
  fill(apart, {0, own.bytes}, me, 0);
  if (in_place) fill(all, own, me, 0);
  const ConstBytes shard = in_place ? ConstBytes(all).subspan(
                                          static_cast<size_t>(own.offset),
                                          static_cast<size_t>(own.bytes))
                                    : ConstBytes(apart);

  const auto work = comm->all_gather(forward("latent"), shard, all, from.parts);
  work->wait();
  const std::vector<int64_t> sent = work->bytes_sent();
  ASSERT_EQ(sent.size(), from.parts.size());
  for (size_t p = 0; p < sent.size(); ++p) {
    const int peer = static_cast<int>(p);
    EXPECT_EQ(first_wrong(all, from.parts[p], peer, 0), -1)
        << "from " << p << " to " << me;
    EXPECT_EQ(sent[p], peer == me ? 0 : own.bytes);
  }
  EXPECT_EQ(touched_gaps(all, from.parts), 0);
}

TEST_P(Transfers, AllGatherLandsShardsOfAnySize) {
  on_ranks(options(), [&](const Comm& comm) {
    const auto shard_bytes = [&](int p) { return uneven(p, 1); };
    check_gather(comm, lay_out(ranks(), true, shard_bytes), false);
  });
}

TEST_P(Transfers, AllGatherMayHaveItsOwnShardInPlace) {
  on_ranks(options(), [&](const Comm& comm) {
    const auto shard_bytes = [&](int p) { return bytes() + p; };
    check_gather(comm, lay_out(ranks(), false, shard_bytes), true);
  });
}

// Even ranks wait in the order of posting, odd ones the other way round.
TEST_P(Transfers, CallsUnderWayMayBeWaitedForInAnyOrder) {
  on_ranks(options(), [&](const Comm& comm) {
    const int me = comm->rank();
    const auto bytes_of = [&](int call) {
      return [this, call](int s, int d) { return uneven(s + call, d); };
    };
    Exchange first(comm, "first", bytes_of(1));
    Exchange second(comm, "second", bytes_of(2));
    Exchange third(comm, "third", bytes_of(3));
    if (me % 2 == 0) {
      first.wait_and_check(me);
      second.wait_and_check(me);
      third.wait_and_check(me);
    } else {
      third.wait_and_check(me);
      first.wait_and_check(me);
      second.wait_and_check(me);
    }
    first.work->wait(); // a second time: at once
  });
}

TEST_P(Transfers, WorkThatIsDroppedWaits) {
  on_ranks(options(), [&](const Comm& comm) {
    const int me = comm->rank();
    Exchange exchange(comm, "q", [&](int s, int d) { return uneven(s, d); });
    exchange.work.reset();
    for (int p = 0; p < ranks(); ++p) {
      const Part& part = exchange.from.parts[static_cast<size_t>(p)];
      EXPECT_EQ(first_wrong(exchange.recv, part, p, me), -1);
    }
    // Peers have copied, so this must not reach them.
    std::fill(exchange.send.begin(), exchange.send.end(), kUntouched);
  });
}

// A group splits by parity and each half again; every group moves its own data.
TEST_P(Transfers, SplitGroupsMoveTheirOwnData) {
  on_ranks(options(), [&](const Comm& comm) {
    const int me = comm->rank();
    const Comm parity = comm->split(me % 2, "parity");
    EXPECT_EQ(parity->name(), "parity");
    EXPECT_EQ(parity->rank(), me / 2);
    EXPECT_EQ(parity->size(), (ranks() + 1 - me % 2) / 2);
    // Larger numbers first: the order inside is that of the ranks all the same.
    const int colour = 9 - parity->rank() / 2;
    const Comm pair = parity->split(colour, "pair");
    EXPECT_EQ(pair->rank(), parity->rank() % 2);

    Exchange in_world(comm, "q", [&](int s, int d) { return uneven(s, d); });
    Exchange in_parity(
        parity, "q", [&](int s, int d) { return uneven(s, d) + me % 2; });
    Exchange in_pair(
        pair, "q", [&](int s, int d) { return uneven(d, s) + colour; });
    // Across groups, too, the order of waiting is free.
    if (me < ranks() / 2) {
      in_world.wait_and_check(me);
      in_parity.wait_and_check(parity->rank());
      in_pair.wait_and_check(pair->rank());
    } else {
      in_pair.wait_and_check(pair->rank());
      in_parity.wait_and_check(parity->rank());
      in_world.wait_and_check(me);
    }
  });
}

using Clock = std::chrono::steady_clock; // one for all ranks of a machine

// The latest of everybody's moments.
Clock::duration::rep latest(const Comm& comm, Clock::time_point own) {
  const Clock::duration::rep mine = own.time_since_epoch().count();
  std::vector<Clock::duration::rep> all(static_cast<size_t>(comm->size()));
  std::vector<Part> from;
  for (int64_t p = 0; p < comm->size(); ++p) {
    from.push_back({p * int64_t{sizeof mine}, sizeof mine});
  }
  const auto bytes = std::as_bytes(std::span(&mine, 1));
  comm->all_gather(
          forward("entered"),
          bytes,
          std::as_writable_bytes(std::span(all)),
          from)
      ->wait();
  return *std::max_element(all.begin(), all.end());
}

class Groups : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Groups, testing::ValuesIn(rank_counts()));

TEST_P(Groups, NobodyPassesABarrierBeforeAllHaveCome) {
  on_ranks({.ranks = GetParam()}, [](const Comm& comm) {
    for (int round = 0; round < 8; ++round) {
      if (round % comm->size() == comm->rank()) {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
      const auto entered = Clock::now();
      comm->barrier(forward("barrier"));
      const auto passed = Clock::now();
      EXPECT_GE(passed.time_since_epoch().count(), latest(comm, entered));
    }
  });
}

TEST_P(Groups, NodesAreRenumberedByFirstAppearance) {
  // 0 0 1 2 2 1 ..., as far as there are ranks.
  RunOptions options{.ranks = GetParam()};
  for (int r = 0; r < options.ranks; ++r) {
    options.node_of.push_back(
        std::vector<int>{0, 0, 1, 2, 2, 1, 3, 3}.at(static_cast<size_t>(r)));
  }
  on_ranks(options, [&](const Comm& comm) {
    for (int r = 0; r < comm->size(); ++r) {
      EXPECT_EQ(comm->node_of(r), options.node_of[static_cast<size_t>(r)]);
    }
    EXPECT_THROW((void)comm->node_of(comm->size()), InvalidArgument);
    EXPECT_THROW((void)comm->node_of(-1), InvalidArgument);
    const Comm part = comm->split(comm->rank() < 3 ? 0 : 1, "part");
    const std::vector<int> expected = comm->rank() < 3
                                          ? std::vector<int>{0, 0, 1}
                                          : std::vector<int>{0, 0, 1, 2, 2};
    for (int r = 0; r < part->size(); ++r) {
      EXPECT_EQ(part->node_of(r), expected[static_cast<size_t>(r)]);
    }
  });
}

// What was refused left no trace: the next call is the first.
TEST_P(Groups, RefusedArgumentsDoNotCountAsACall) {
  const auto errors = errors_on_ranks({.ranks = GetParam()}, [](auto& comm) {
    if (comm->rank() == 0) {
      EXPECT_THROW((void)comm->split(-1, "sp"), InvalidArgument);
      const std::vector<Part> too_few;
      EXPECT_THROW(
          (void)comm->all_to_all(forward("q"), {}, too_few, {}, too_few),
          InvalidArgument);
    }
    gather_and_wait(comm, "latent");
  });
  for (const auto& [rank, error] : errors)
    EXPECT_EQ(error, "") << rank;
}

} // namespace
} // namespace laga::test
