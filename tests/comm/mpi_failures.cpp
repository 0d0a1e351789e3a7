// Ranks that make one round of collectives after the other until something goes
// wrong; test_mpi_failures.py sees to that and reads what they print.
//   mpi_failures SCENARIO DEADLINE_S [MARK]   (MARK: only to be found by ps)
// Exit: 0 after 20 rounds of `clean`, 3 after a CommError, 4 after another one.
#include "laga/comm/mpi/mpi.h"
#include "laga/core/check.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

namespace {

using namespace laga;
using Buffer = std::vector<std::byte>;

constexpr int kLastCleanRound = 20;
constexpr int kBadRound = 5;
constexpr int kBadRank = 1;

std::vector<Part> equal_parts(int ranks, int64_t bytes) {
  std::vector<Part> parts;
  for (int64_t p = 0; p < ranks; ++p) {
    parts.push_back({p * bytes, bytes});
  }
  return parts;
}

// Some of it small, some too large to be sent before it is received.
void round_of_calls(Communicator& comm, const std::string& scenario, bool bad) {
  constexpr int64_t kSmall = 64;
  constexpr int64_t kLarge = 1 << 20;
  const auto size = static_cast<size_t>(comm.size());
  const Buffer shard(kSmall);
  Buffer all(size * kSmall);
  comm.all_gather(
          {Phase::kForward, "latent"},
          shard,
          all,
          equal_parts(comm.size(), kSmall))
      ->wait();

  const auto parts = equal_parts(comm.size(), kLarge);
  const Buffer send(size * kLarge);
  Buffer recv(size * kLarge);
  const auto work =
      comm.all_to_all({Phase::kForward, "q"}, send, parts, recv, parts);
  if (bad && scenario == "throw-midway") {
    throw std::runtime_error("out of memory");
  }
  work->wait();
  comm.barrier({Phase::kForward, "step"});
}

void run(Communicator& comm, const std::string& scenario) {
  for (int round = 1;; ++round) {
    if (round == kLastCleanRound && scenario == "clean") return;
    const bool bad = round == kBadRound && comm.rank() == kBadRank;
    if (bad && scenario == "throw") throw std::domain_error("loss is NaN");
    if (bad && scenario == "leave") return;
    if (bad && scenario == "hang") {
      std::this_thread::sleep_for(std::chrono::hours(1));
    }
    round_of_calls(comm, scenario, bad);
    if (round == kBadRound) std::printf("rank %d is at work\n", comm.rank());
    std::fflush(stdout);
    std::this_thread::sleep_for(std::chrono::milliseconds(5)); // computes
  }
}

} // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  const auto comm = mpi_world({.deadline_s = std::atof(argv[2])});
  std::printf("rank %d has pid %d\n", comm->rank(), getpid());
  std::fflush(stdout);
  try {
    run(*comm, argv[1]);
    mpi_finalize();
    return 0;
  } catch (const CommError& error) {
    std::fprintf(stderr, "rank %d: %s\n", comm->rank(), error.what());
    mpi_abort(3);
  } catch (const std::exception& error) {
    comm->abort(
        detail::concat("rank ", comm->rank(), " failed: ", error.what()));
    std::fprintf(stderr, "rank %d failed: %s\n", comm->rank(), error.what());
    mpi_abort(4);
  }
}
