#include "laga/comm/threads/job.h"

#include "laga/comm/arguments.h"

#include <algorithm>
#include <cstring>

namespace laga::threads {

namespace {

// Copies everybody's part for `rank`, each straight out of its sender's buffer,
// and counts it there. Starts with the own part and the next neighbour, so that
// not all ranks read from rank 0 at once.
void copy_parts(Collective& collective, int rank) {
  const auto self = static_cast<size_t>(rank);
  const size_t size = collective.calls.size();
  const Call& mine = collective.calls[self];
  for (size_t step = 0; step < size; ++step) {
    const size_t peer = (self + step) % size;
    Call& theirs = collective.calls[peer];
    const Part& part = mine.from[peer];
    if (part.bytes == 0) continue;
    const std::byte* source = theirs.send.data() + theirs.to[self].offset;
    std::byte* target = mine.recv.data() + part.offset;
    if (source == target) continue; // the own part, in place
    std::memcpy(target, source, static_cast<size_t>(part.bytes));
    if (peer != self) theirs.bytes_sent[self] += part.bytes;
  }
}

} // namespace

std::string Collective::describe(int rank) const {
  const Call& call = calls[static_cast<size_t>(rank)];
  return detail::concat(
      laga::describe(call.label, call.op), " (#", number, ")");
}

Job::Job(int rank_count, double deadline_of_wait_s)
    : deadline_s(deadline_of_wait_s), ranks(static_cast<size_t>(rank_count)) {}

void Job::abort(std::string_view why) noexcept {
  const std::lock_guard lock(mutex);
  abort_locked(why);
}

void Job::abort_locked(std::string_view why) noexcept {
  if (aborted) return;
  aborted = true;
  try {
    reason = why;
  } catch (const std::bad_alloc&) {
    // Waking the ranks matters more than telling them why.
  }
  changed.notify_all();
}

void Job::throw_aborted(const std::string& who) const {
  throw Aborted(detail::concat(who, ": ", reason));
}

bool Job::fetch_one(std::unique_lock<std::mutex>& lock, int world_rank) {
  std::vector<Side>& pending = ranks[static_cast<size_t>(world_rank)].pending;
  const auto is_ready = [](const Side& side) {
    const Call& call = side.collective->calls[static_cast<size_t>(side.rank)];
    return side.collective->all_posted() && call.stage == Stage::kPosted;
  };
  const auto ready = std::find_if(pending.begin(), pending.end(), is_ready);
  if (ready == pending.end()) return false;
  const Side side = *ready;
  pending.erase(ready);

  Collective& collective = *side.collective;
  const auto self = static_cast<size_t>(side.rank);
  collective.calls[self].stage = Stage::kCopying;
  for (Call& call : collective.calls)
    ++call.readers;
  lock.unlock();
  copy_parts(collective, side.rank);
  lock.lock();
  for (Call& call : collective.calls)
    --call.readers;
  collective.calls[self].stage = Stage::kFetched;
  ++collective.fetched;
  // Only these two are waited for; anything else would wake ranks in vain.
  if (collective.all_fetched() || aborted) changed.notify_all();
  return true;
}

void Job::drain(std::unique_lock<std::mutex>& lock, const Side& side) {
  // A rank that copies is a reader of its own call, too.
  const Call& call = side.collective->calls[static_cast<size_t>(side.rank)];
  changed.wait(lock, [&] { return call.readers == 0; });
}

std::string Job::last_call(int world_rank) const {
  const Side& last = ranks[static_cast<size_t>(world_rank)].last;
  if (!last.collective) return "none";
  return detail::concat(
      last.collective->describe(last.rank), " of ", last.collective->group);
}

Clock::duration Job::deadline() const {
  // 30 years, which a count of nanoseconds still holds.
  constexpr double kForeverInSeconds = 1e9;
  return std::chrono::duration_cast<Clock::duration>(
      std::chrono::duration<double>(std::min(deadline_s, kForeverInSeconds)));
}

} // namespace laga::threads
