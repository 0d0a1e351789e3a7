#include "laga/comm/mpi/group.h"

#include "laga/core/check.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

namespace laga::mpi {

namespace {

using Clock = std::chrono::steady_clock;

// After an abort: how long to wait for peers that may have come just before
// it, and for transfers with those that have. What is late by then comes from a
// rank that is dead or stopped.
constexpr std::chrono::milliseconds kLateWord{100};
constexpr std::chrono::milliseconds kLateData{500};

// Between two looks, without the lock. At first a rank looks again at once, for
// the sake of small transfers; then it naps. Giving way to others with
// sched_yield instead would be no faster, and a rank that does so for long may
// get no core at all for seconds where there are more threads than cores.
class Pause {
 public:
  void rest(Lock& lock) {
    lock.unlock();
    if (Clock::now() - start_ < kAtFirst) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(kNap);
    }
    lock.lock();
  }

 private:
  static constexpr std::chrono::microseconds kAtFirst{50};
  static constexpr std::chrono::microseconds kNap{20};
  const Clock::time_point start_ = Clock::now();
};

Clock::duration seconds(double s) {
  // 30 years, which a count of nanoseconds still holds.
  constexpr double kForever = 1e9;
  return std::chrono::duration_cast<Clock::duration>(
      std::chrono::duration<double>(std::min(s, kForever)));
}

} // namespace

Group::Group(
    Transport& transport,
    int32_t world,
    uint64_t id,
    std::string name,
    Limits limits,
    int rank,
    std::vector<int> world_ranks,
    std::vector<int> node_of)
    : transport_(transport),
      world_(world),
      id_(id),
      name_(std::move(name)),
      limits_(limits),
      rank_(rank),
      world_ranks_(std::move(world_ranks)),
      node_of_(std::move(node_of)) {}

int Group::rank_of(int world_rank) const {
  const auto found =
      std::find(world_ranks_.begin(), world_ranks_.end(), world_rank);
  return static_cast<int>(found - world_ranks_.begin());
}

std::shared_ptr<Operation> Group::post(Call call) {
  Lock lock = transport_.lock();
  const std::string op = call.op;
  transport_.progress(); // an abort may have come meanwhile
  const auto operation = std::make_shared<Operation>(
      shared_from_this(), ++number_, std::move(call));
  if (const std::string* reason = transport_.abort_reason(world_)) {
    throw CommError(
        detail::concat("[", op, "] ", operation->describe(), ": ", *reason));
  }
  operation->announce(transport_.next_tag());
  transport_.add(*operation);
  lock.unlock(); // the others can go on meanwhile
  operation->copy_own_part();
  return operation;
}

void Group::wait(Operation& operation) {
  const Clock::time_point deadline = Clock::now() + seconds(deadline_s());
  const Transport::Driving driving(transport_);
  Lock lock = transport_.lock();
  Pause pause;
  for (;;) {
    const bool late = Clock::now() >= deadline; // before the last look
    transport_.progress();
    if (transport_.abort_reason(world_) != nullptr) break;
    if (operation.finished()) {
      transport_.remove(operation);
      return;
    }
    if (late) {
      transport_.abort(world_, operation.overdue());
    } else {
      pause.rest(lock);
    }
  }
  settle(lock, operation);
  throw CommError(detail::concat(
      "[wait] ", operation.describe(), ": ", *transport_.abort_reason(world_)));
}

void Group::abandon(Operation& operation) noexcept {
  const Transport::Driving driving(transport_);
  Lock lock = transport_.lock();
  transport_.abort(
      world_,
      detail::concat(
          operation.describe(), " was given up while an exception unwound"));
  settle(lock, operation);
}

// After an abort. Peers that came before it may be sending to this rank or
// waiting for its data, so the operation goes on for a moment. If that does not
// end it, MPI must not be called again: only then are the buffers free.
void Group::settle(Lock& lock, Operation& operation) {
  const Clock::time_point start = Clock::now();
  Pause pause;
  for (;;) {
    transport_.progress();
    const bool done = operation.transfers_done() && transport_.all_told();
    const Clock::duration waited = Clock::now() - start;
    if (done && (operation.all_heard() || waited > kLateWord)) break;
    if (waited > kLateData) break;
    pause.rest(lock);
  }
  transport_.remove(operation);
  if (operation.transfers_done()) return;
  transport_.stop(*transport_.abort_reason(world_));
}

void Group::abort(std::string_view reason) noexcept {
  const Lock lock = transport_.lock();
  transport_.abort(world_, reason);
}

std::shared_ptr<Group> Group::child(
    int64_t number,
    const std::vector<int>& colours,
    const std::string& name) const {
  const int colour = colours[static_cast<size_t>(rank_)];
  std::vector<int> world_ranks;
  std::vector<int> node_of;
  int rank = 0;
  for (int r = 0; r < size(); ++r) {
    if (colours[static_cast<size_t>(r)] != colour) continue;
    if (r == rank_) rank = static_cast<int>(world_ranks.size());
    world_ranks.push_back(world_rank(r));
    node_of.push_back(this->node_of(r));
  }
  const uint64_t id = hash_of(
      hash_of(id_, static_cast<uint64_t>(number)),
      static_cast<uint64_t>(colour));
  return std::make_shared<Group>(
      transport_,
      world_,
      id,
      name,
      limits_,
      rank,
      std::move(world_ranks),
      numbered_anew(node_of));
}

} // namespace laga::mpi
