// Which exception run_ranks rethrows, and what becomes of a rank that is stuck.
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

template <typename Exception, typename Body>
std::string message_of(const ThreadGroupOptions& options, const Body& body) {
  try {
    run_ranks(options, body);
  } catch (const Exception& error) {
    return error.what();
  }
  return "nothing thrown";
}

TEST(RunRanks, EveryRankRunsOnAThreadOfItsOwn) {
  std::vector<std::thread::id> threads(5);
  run_ranks(ranks(5), [&](const Comm& comm) {
    threads[static_cast<size_t>(comm->rank())] = std::this_thread::get_id();
  });
  threads.push_back(std::this_thread::get_id());
  for (size_t i = 0; i < threads.size(); ++i) {
    EXPECT_NE(threads[i], std::thread::id());
    for (size_t j = 0; j < i; ++j)
      EXPECT_NE(threads[i], threads[j]);
  }
}

TEST(RunRanks, ThrowingRankAbortsTheOthersAndIsRethrown) {
  std::vector<std::string> errors(4);
  const auto body = [&](const Comm& comm) {
    try {
      if (comm->rank() == 2) throw std::domain_error("loss is NaN");
      gather_and_wait(comm, "latent");
    } catch (const CommError& error) {
      errors[static_cast<size_t>(comm->rank())] = error.what();
      throw;
    }
  };
  EXPECT_EQ(message_of<std::domain_error>(ranks(4), body), "loss is NaN");
  EXPECT_TRUE(all_contain(
      errors,
      "in forward/latent all_gather (#1) of world: rank 2 failed: loss is NaN",
      2));
}

// While rank 1's exception unwinds, its transfer aborts the group, and the
// others may be first to end. Theirs is still not the cause.
TEST(RunRanks, CauseIsRethrownEvenIfItsConsequencesComeFirst) {
  const auto body = [](const Comm& comm) {
    // Destroyed after the transfer: gives the others time to end.
    struct Slow {
      ~Slow() {
        std::this_thread::sleep_for(std::chrono::milliseconds(30));
      }
    };
    std::optional<Slow> slow;
    if (comm->rank() == 1) slow.emplace();
    const Buffer shard(8);
    Buffer all(24);
    const std::vector<Part> from{{0, 8}, {8, 8}, {16, 8}};
    const auto work = comm->all_gather(forward("latent"), shard, all, from);
    if (comm->rank() == 1) throw std::out_of_range("token 7");
    work->wait();
  };
  EXPECT_EQ(message_of<std::out_of_range>(ranks(3), body), "token 7");
}

TEST(RunRanks, CallersMistakeKeepsItsType) {
  const auto body = [](const Comm& comm) {
    if (comm->rank() == 0) (void)comm->split(-1, "sp");
    gather_and_wait(comm, "latent");
  };
  EXPECT_TRUE(contains(
      message_of<InvalidArgument>(ranks(3), body),
      "[split] colour >= 0 (-1 vs 0)"));
}

TEST(RunRanks, DisagreementIsRethrownAsCommError) {
  const auto body = [](const Comm& comm) {
    gather_and_wait(comm, comm->rank() == 1 ? "q" : "latent");
  };
  EXPECT_TRUE(contains(
      message_of<CommError>(ranks(2), body),
      "rank 1 calls forward/q all_gather (#1)"));
}

TEST(RunRanks, ExceptionOfAnyTypeIsRethrown) {
  const auto body = [](const Comm& comm) {
    if (comm->rank() == 1) throw 42;
    gather_and_wait(comm, "latent");
  };
  EXPECT_THROW(run_ranks(ranks(2), body), int);
}

// The body and the group must outlive run_ranks for the rank that is left.
TEST(RunRanks, StuckRankIsLeftBehindAndNamed) {
  struct Shared {
    std::atomic<bool> released = false;
    std::atomic<bool> raised = false;
  };
  const auto shared = std::make_shared<Shared>();
  const std::string message =
      message_of<CommError>(ranks(3, 0.2), [shared](const Comm& comm) {
        gather_and_wait(comm, "q");
        if (comm->rank() == 1) {
          while (!shared->released) {
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
          }
          try {
            gather_and_wait(comm, "latent");
          } catch (const CommError&) {
            shared->raised = true;
          }
          return;
        }
        gather_and_wait(comm, "latent");
      });
  EXPECT_TRUE(contains(
      message,
      "[run_ranks] rank 1 still busy 0.2 s after an abort and left behind: "));
  EXPECT_TRUE(contains(
      message,
      "waited 0.2 s in forward/latent all_gather (#2) of world for rank 1, "
      "whose last call was forward/q all_gather (#1) of world"));
  shared->released = true;
  // The last owner is gone when the thread has ended with its copy of the body.
  while (shared.use_count() > 1) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_TRUE(shared->raised);
}

} // namespace
} // namespace laga::test
