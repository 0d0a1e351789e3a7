#include "laga/comm/threads/threads.h"
#include "laga/comm/threads/world.h"

#include <exception>
#include <thread>
#include <utility>

namespace laga {

namespace {

using Body = std::function<void(const std::shared_ptr<Communicator>&)>;

// What the ranks' threads share with their starter. Held by shared_ptr, with
// its own copy of the body, because a rank left behind still uses it.
struct Run {
  Run(Body b, std::shared_ptr<threads::Job> j, size_t ranks)
      : body(std::move(b)), job(std::move(j)), busy(ranks, true) {}

  const Body body;
  const std::shared_ptr<threads::Job> job;
  // Guarded by the job's mutex.
  std::vector<bool> busy;         // by rank
  std::exception_ptr cause;       // the first that no abort brought about
  std::exception_ptr consequence; // the first that one did

  bool any_busy() const {
    for (const bool rank : busy) {
      if (rank) return true;
    }
    return false;
  }

  // Recorded before the abort, so that its consequences come later.
  void fail(int rank, const std::string& what) {
    const std::lock_guard lock(job->mutex);
    if (!cause) cause = std::current_exception();
    job->abort_locked(detail::concat("rank ", rank, " failed: ", what));
  }

  void fail_in_consequence() {
    const std::lock_guard lock(job->mutex);
    if (!consequence) consequence = std::current_exception();
  }

  void finish(int rank) {
    const std::lock_guard lock(job->mutex);
    busy[static_cast<size_t>(rank)] = false;
    job->changed.notify_all();
  }
};

void run_rank(Run& run, std::shared_ptr<Communicator> communicator) {
  const int rank = communicator->rank();
  try {
    run.body(communicator);
  } catch (const threads::Aborted&) {
    run.fail_in_consequence();
  } catch (const std::exception& error) {
    run.fail(rank, error.what());
  } catch (...) {
    run.fail(rank, "an exception that is no std::exception");
  }
  communicator.reset(); // leaves, so that nobody waits for this rank
  run.finish(rank);
}

// A thread that cannot be started is a rank that failed.
std::thread start_rank(
    const std::shared_ptr<Run>& run,
    std::shared_ptr<Communicator> communicator) {
  const int rank = communicator->rank();
  try {
    return std::thread([run, communicator = std::move(communicator)]() mutable {
      run_rank(*run, std::move(communicator));
    });
  } catch (const std::system_error& error) {
    run->fail(rank, error.what());
    run->finish(rank);
    return {};
  }
}

// Until all are done or, after an abort, the deadline; returns who is not.
std::vector<bool> wait_for_ranks(const Run& run) {
  threads::Job& job = *run.job;
  std::unique_lock lock(job.mutex);
  job.changed.wait(lock, [&] { return !run.any_busy() || job.aborted; });
  job.changed.wait_for(lock, job.deadline(), [&] { return !run.any_busy(); });
  return run.busy;
}

} // namespace

void run_ranks(const ThreadGroupOptions& options, const Body& body) {
  threads::World world = threads::make_world(options);
  const auto run =
      std::make_shared<Run>(body, world.job, world.communicators.size());
  std::vector<std::thread> ranks;
  for (auto& communicator : world.communicators) {
    ranks.push_back(start_rank(run, std::move(communicator)));
  }

  const std::vector<bool> stuck = wait_for_ranks(*run);
  std::string names;
  for (size_t r = 0; r < ranks.size(); ++r) {
    if (stuck[r]) {
      names += detail::concat(names.empty() ? "rank " : ", rank ", r);
      ranks[r].detach();
    } else if (ranks[r].joinable()) {
      ranks[r].join();
    }
  }

  const std::lock_guard lock(run->job->mutex);
  if (!names.empty()) {
    throw CommError(detail::concat(
        "[run_ranks] ",
        names,
        " still busy ",
        options.deadline_s,
        " s after an abort and left behind: ",
        run->job->reason));
  }
  if (run->cause) std::rethrow_exception(run->cause);
  if (run->consequence) std::rethrow_exception(run->consequence);
}

} // namespace laga
