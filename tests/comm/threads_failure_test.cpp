// Ranks that die, hang or leave: every other rank raises and names the call and
// the rank.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "tests/comm/support.h"

namespace laga::test {
namespace {

ThreadGroupOptions ranks(int count, double deadline_s = 60) {
  return {.ranks = count, .deadline_s = deadline_s};
}

// A gather that is posted, not waited for; its buffers live as long as it does.
struct Gather {
  Buffer shard, all;
  std::unique_ptr<Work> work;

  Gather(const Comm& comm, const std::string& name)
      : shard(64), all(64 * static_cast<size_t>(comm->size())) {
    std::vector<Part> from;
    for (int64_t p = 0; p < comm->size(); ++p) {
      from.push_back({p * 64, 64});
    }
    work = comm->all_gather(forward(name), shard, all, from);
  }
};

// Lets a rank sit still until `count` others have come to some point.
class Others {
 public:
  explicit Others(int count) : count_(count) {}
  void arrive() {
    ++arrived_;
  }
  void sit_still() const {
    while (arrived_ < count_) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

 private:
  const int count_;
  std::atomic<int> arrived_ = 0;
};

TEST(ThreadsFailure, SizesThatDoNotFitRaiseBeforeAnythingMoves) {
  std::vector<Buffer> received(3);
  const auto errors = errors_by_rank(ranks(3), [&](const Comm& comm) {
    const Buffer send(192);
    Buffer& recv = received[static_cast<size_t>(comm->rank())];
    recv.assign(192, kUntouched);
    std::vector<Part> to{{0, 32}, {64, 32}, {128, 32}};
    const std::vector<Part> from = to;
    if (comm->rank() == 1) to[0].bytes = 64;
    comm->all_to_all(forward("q"), send, to, recv, from)->wait();
  });
  EXPECT_TRUE(all_contain(
      errors,
      "rank 1 sends 64 bytes to rank 0, which expects 32: "
      "forward/q all_to_all (#1) of world"));
  for (const Buffer& recv : received) {
    EXPECT_EQ(recv, Buffer(192, kUntouched));
  }
}

TEST(ThreadsFailure, HungRankIsNamedAfterTheDeadline) {
  Others others_raised(2);
  const auto start = std::chrono::steady_clock::now();
  const auto errors = errors_by_rank(ranks(3, 0.2), [&](const Comm& comm) {
    gather_and_wait(comm, "q");
    if (comm->rank() == 2) {
      others_raised.sit_still();
      gather_and_wait(comm, "latent"); // too late
      return;
    }
    try {
      gather_and_wait(comm, "latent");
    } catch (const CommError&) {
      others_raised.arrive();
      throw;
    }
  });
  const std::chrono::duration<double> waited =
      std::chrono::steady_clock::now() - start;
  EXPECT_GE(waited.count(), 0.2);
  EXPECT_TRUE(all_contain(
      errors,
      "waited 0.2 s in forward/latent all_gather (#2) of world for rank 2, "
      "whose last call was forward/q all_gather (#1) of world"));
}

TEST(ThreadsFailure, RankThatPostsButDoesNotFetchIsNamed) {
  Others others_raised(1);
  const auto errors = errors_by_rank(ranks(2, 0.2), [&](const Comm& comm) {
    Gather gather(comm, "latent");
    if (comm->rank() == 1) others_raised.sit_still();
    try {
      gather.work->wait();
    } catch (const CommError&) {
      others_raised.arrive();
      throw;
    }
  });
  EXPECT_TRUE(all_contain(
      errors,
      "rank 0 waited 0.2 s in forward/latent all_gather (#1) of world for "
      "rank 1, which posted it but has not fetched its part"));
}

TEST(ThreadsFailure, RankThatLeavesIsNamedAtOnce) {
  const auto errors = errors_by_rank(ranks(4), [](const Comm& comm) {
    gather_and_wait(comm, "q");
    if (comm->rank() == 1) return;
    gather_and_wait(comm, "latent");
  });
  EXPECT_EQ(errors[1], "");
  EXPECT_TRUE(all_contain(
      errors,
      "in forward/latent all_gather (#2) of world waits for rank 1, which left "
      "after its last call, forward/q all_gather (#1)",
      1));
}

TEST(ThreadsFailure, AbortFromOutsideWakesTheWaiting) {
  const auto comms = make_thread_group(ranks(3));
  std::vector<std::string> errors(2);
  std::vector<std::thread> waiting;
  for (size_t r = 0; r < 2; ++r) {
    waiting.emplace_back([&, r] {
      try {
        gather_and_wait(comms[r], "latent");
      } catch (const CommError& error) {
        errors[r] = error.what();
      }
    });
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  comms[2]->abort("the user pressed stop");
  for (std::thread& thread : waiting)
    thread.join();
  for (size_t r = 0; r < 2; ++r) {
    // The abort may come before the call or while it waits.
    EXPECT_TRUE(contains(
        errors[r],
        detail::concat(
            "rank ",
            r,
            " in forward/latent all_gather (#1) of world: the user pressed "
            "stop")));
  }
}

TEST(ThreadsFailure, AbortInAGroupWakesWaitersOfItsParent) {
  Others others_split(3);
  const auto errors = errors_by_rank(ranks(4), [&](const Comm& comm) {
    const Comm parity = comm->split(comm->rank() % 2, "parity");
    if (comm->rank() == 3) {
      others_split.sit_still();
      parity->abort("out of memory");
      return;
    }
    others_split.arrive();
    gather_and_wait(comm, "latent");
  });
  EXPECT_TRUE(all_contain(
      errors, "in forward/latent all_gather (#2) of world: out of memory", 3));
}

// The buffers of a transfer die with the stack, so no peer may copy from them
// afterwards: what the address sanitizer would see here.
TEST(ThreadsFailure, UnwindingAbortsAndKeepsBuffersUntilTheyAreFree) {
  for (int repeat = 0; repeat < 20; ++repeat) {
    std::vector<std::string> errors(4);
    const auto body = [&](const Comm& comm) {
      const auto me = static_cast<size_t>(comm->rank());
      try {
        constexpr int64_t kBytes = 1000000; // long enough to be caught at it
        const Buffer shard(kBytes, std::byte{7});
        Buffer all(4 * kBytes);
        std::vector<Part> from;
        for (int64_t p = 0; p < 4; ++p) {
          from.push_back({p * kBytes, kBytes});
        }
        const auto work = comm->all_gather(forward("latent"), shard, all, from);
        if (me == 2) throw std::runtime_error("diverged");
        work->wait();
      } catch (const CommError& error) {
        errors[me] = error.what();
      }
    };
    EXPECT_THROW(run_ranks(ranks(4), body), std::runtime_error);
    EXPECT_TRUE(all_contain(
        errors,
        "rank 2 in forward/latent all_gather (#1) of world was given up while "
        "an exception unwound",
        2));
  }
}

} // namespace
} // namespace laga::test
