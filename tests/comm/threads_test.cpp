// What moves, where it lands and what is counted, for any number of ranks.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/comm/support.h"

namespace laga::test {
namespace {

struct Case {
  int ranks;
  int64_t bytes;
};

class Threads : public testing::TestWithParam<Case> {
 protected:
  int ranks() const {
    return GetParam().ranks;
  }
  int64_t bytes() const {
    return GetParam().bytes;
  }
  ThreadGroupOptions options() const {
    return {.ranks = ranks(), .deadline_s = 60};
  }
  // Differs for every pair, 0 for some.
  int64_t uneven(int source, int destination) const {
    return bytes() * ((source * 3 + destination * 5) % 7) / 3;
  }
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const int ranks : {1, 2, 3, 4, 7, 8}) {
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
    RanksAndBytes, Threads, testing::ValuesIn(cases()), case_name);

// One all-to-all of one rank: what it sends, where it goes, what must arrive.
struct Exchange {
  Layout to, from;
  Buffer send, recv;
  std::unique_ptr<Work> work;

  template <typename BytesBetween>
  Exchange(
      const Comm& comm,
      const std::string& name,
      const BytesBetween& bytes_between) {
    const int me = comm->rank();
    to = lay_out(
        comm->size(), true, [&](int p) { return bytes_between(me, p); });
    from = lay_out(
        comm->size(), false, [&](int p) { return bytes_between(p, me); });
    send.resize(static_cast<size_t>(to.bytes));
    recv.assign(static_cast<size_t>(from.bytes), kUntouched);
    for (int p = 0; p < comm->size(); ++p) {
      fill(send, to.parts[static_cast<size_t>(p)], me, p);
    }
    work = comm->all_to_all(forward(name), send, to.parts, recv, from.parts);
  }

  void wait_and_check(int me) {
    work->wait();
    const std::vector<int64_t> sent = work->bytes_sent();
    ASSERT_EQ(sent.size(), to.parts.size());
    for (size_t p = 0; p < sent.size(); ++p) {
      const int peer = static_cast<int>(p);
      EXPECT_EQ(first_wrong(recv, from.parts[p], peer, me), -1)
          << "from " << p << " to " << me;
      EXPECT_EQ(sent[p], peer == me ? 0 : to.parts[p].bytes)
          << "from " << me << " to " << p;
    }
    EXPECT_EQ(touched_gaps(recv, from.parts), 0);
  }
};

TEST_P(Threads, AllToAllMovesEqualParts) {
  run_ranks(options(), [&](const Comm& comm) {
    Exchange exchange(comm, "q", [&](int, int) { return bytes(); });
    exchange.wait_and_check(comm->rank());
  });
}

TEST_P(Threads, AllToAllMovesUnevenParts) {
  run_ranks(options(), [&](const Comm& comm) {
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

TEST_P(Threads, AllGatherLandsShardsOfAnySize) {
  run_ranks(options(), [&](const Comm& comm) {
    const auto shard_bytes = [&](int p) { return uneven(p, 1); };
    check_gather(comm, lay_out(ranks(), true, shard_bytes), false);
  });
}

TEST_P(Threads, AllGatherMayHaveItsOwnShardInPlace) {
  run_ranks(options(), [&](const Comm& comm) {
    const auto shard_bytes = [&](int p) { return bytes() + p; };
    check_gather(comm, lay_out(ranks(), false, shard_bytes), true);
  });
}

// Even ranks wait in the order of posting, odd ones the other way round.
TEST_P(Threads, CallsUnderWayMayBeWaitedForInAnyOrder) {
  run_ranks(options(), [&](const Comm& comm) {
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

TEST_P(Threads, WorkThatIsDroppedWaits) {
  run_ranks(options(), [&](const Comm& comm) {
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
TEST_P(Threads, SplitGroupsMoveTheirOwnData) {
  run_ranks(options(), [&](const Comm& comm) {
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

TEST(ThreadsBarrier, NobodyPassesBeforeAllHaveCome) {
  constexpr int kRanks = 4;
  std::vector<int> rounds(
      kRanks); // no atomics: the barrier orders the accesses
  run_ranks({.ranks = kRanks, .deadline_s = 60}, [&](auto& comm) {
    for (int round = 1; round <= 20; ++round) {
      rounds[static_cast<size_t>(comm->rank())] = round;
      comm->barrier(forward("written"));
      EXPECT_EQ(rounds, std::vector<int>(kRanks, round));
      comm->barrier(forward("read"));
    }
  });
}

TEST(ThreadsSplit, NodesAreRenumberedByFirstAppearance) {
  const ThreadGroupOptions options{
      .ranks = 6, .deadline_s = 60, .node_of = {0, 0, 1, 2, 2, 1}};
  run_ranks(options, [&](const Comm& comm) {
    for (int r = 0; r < 6; ++r) {
      EXPECT_EQ(comm->node_of(r), options.node_of[static_cast<size_t>(r)]);
    }
    EXPECT_THROW((void)comm->node_of(6), InvalidArgument);
    const Comm half = comm->split(comm->rank() < 3 ? 0 : 1, "half");
    const std::vector<int> expected =
        comm->rank() < 3 ? std::vector<int>{0, 0, 1}  // of 0, 0, 1
                         : std::vector<int>{0, 0, 1}; // of 2, 2, 1
    for (int r = 0; r < 3; ++r) {
      EXPECT_EQ(half->node_of(r), expected[static_cast<size_t>(r)]);
    }
  });
}

TEST(MakeThreadGroup, RanksAreInOrderOnOneNode) {
  const auto comms = make_thread_group({.ranks = 3});
  ASSERT_EQ(comms.size(), 3u);
  for (int r = 0; r < 3; ++r) {
    const Comm& comm = comms[static_cast<size_t>(r)];
    EXPECT_EQ(comm->rank(), r);
    EXPECT_EQ(comm->size(), 3);
    EXPECT_EQ(comm->name(), "world");
    EXPECT_EQ(comm->node_of(r), 0);
  }
}

TEST(MakeThreadGroup, RefusesImpossibleOptions) {
  const auto refused =
      [](int ranks, double deadline_s, std::vector<int> nodes) {
        try {
          (void)make_thread_group({ranks, deadline_s, std::move(nodes)});
        } catch (const InvalidArgument&) {
          return true;
        }
        return false;
      };
  EXPECT_FALSE(refused(2, 1, {1, 0}));
  EXPECT_TRUE(refused(0, 1, {}));
  EXPECT_TRUE(refused(2, 0, {}));
  EXPECT_TRUE(refused(2, std::nan(""), {}));
  EXPECT_TRUE(refused(2, 1, {0}));
  EXPECT_TRUE(refused(2, 1, {0, -1}));
  EXPECT_TRUE(refused(2, 1, {1, 1}));
  EXPECT_TRUE(refused(2, 1, {0, 2}));
}

} // namespace
} // namespace laga::test
