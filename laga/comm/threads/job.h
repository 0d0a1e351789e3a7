// What all ranks of a job share, whatever group they talk in: the posted calls,
// one lock and one abort. So a dead rank anywhere wakes everybody.
#pragma once

#include "laga/comm/communicator.h"
#include "laga/core/check.h"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <utility>

namespace laga::threads {

using Clock = std::chrono::steady_clock;

/// What a rank throws because the job was aborted, by itself or by another.
class Aborted : public CommError {
 public:
  using CommError::CommError;
};

enum class Stage { kAbsent, kPosted, kCopying, kFetched };

/// What one rank gave to a collective. Changed under the job's lock; the
/// buffers are touched without it, but only in stage kCopying of some rank.
struct Call {
  std::string op; // "all_to_all", "all_gather", "barrier"
  Label label;
  ConstBytes send;
  std::vector<Part> to;
  Bytes recv;
  std::vector<Part> from;

  Stage stage = Stage::kAbsent;
  int readers = 0; // peers in the middle of copying from send
  std::vector<int64_t> bytes_sent = {}; // [p]: added by p, which copied them
};

/// One collective of a group: its ranks' calls of one number.
struct Collective {
  Collective(std::string group_name, int64_t call_number, int ranks)
      : group(std::move(group_name)),
        number(call_number),
        calls(static_cast<size_t>(ranks)) {}

  const std::string group;
  const int64_t number; // from 1; every rank counts its own calls
  std::vector<Call> calls;
  int posted = 0;
  int fetched = 0; // ranks that have copied all of theirs

  bool all_posted() const {
    return posted == static_cast<int>(calls.size());
  }
  bool all_fetched() const {
    return fetched == static_cast<int>(calls.size());
  }
  /// "forward/q all_to_all (#3)"
  std::string describe(int rank) const;
};

/// A rank's side of a collective.
struct Side {
  std::shared_ptr<Collective> collective;
  int rank = 0; // in the collective's group
};

/// Whoever calls anything but abort() and deadline() holds the lock.
struct Job {
  Job(int ranks, double deadline_s);

  /// Wakes everybody; the first reason stays.
  void abort(std::string_view why) noexcept;
  void abort_locked(std::string_view why) noexcept;

  /// Throws Aborted with `who` ("[wait] rank 1 in ...") and the reason.
  [[noreturn]] void throw_aborted(const std::string& who) const;

  /// Copies what peers send to this rank in its oldest call that everybody has
  /// posted, in whatever group, without the lock meanwhile. False: none.
  bool fetch_one(std::unique_lock<std::mutex>& lock, int world_rank);

  /// Blocks until nobody copies from or to this side's buffers, so that they
  /// can be freed. After an abort, no new copy starts.
  void drain(std::unique_lock<std::mutex>& lock, const Side& side);

  /// "forward/q all_to_all (#6) of world" of the rank's last call.
  std::string last_call(int world_rank) const;

  Clock::duration deadline() const;

  struct Rank {
    std::vector<Side> pending; // posted, not yet fetched; oldest first
    Side last;
  };

  const double deadline_s;
  std::mutex mutex; // guards all below and all groups of the job
  std::condition_variable changed;
  bool aborted = false;
  std::string reason;
  std::vector<Rank> ranks; // by world rank
};

} // namespace laga::threads
