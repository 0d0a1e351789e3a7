#include "laga/comm/threads/group.h"

#include <algorithm>
#include <sstream>
#include <utility>

namespace laga::threads {

Group::Group(
    std::shared_ptr<Job> job,
    std::string name,
    std::vector<int> world_ranks,
    std::vector<int> node_of)
    : job_(std::move(job)),
      name_(std::move(name)),
      world_ranks_(std::move(world_ranks)),
      node_of_(std::move(node_of)),
      numbers_(world_ranks_.size()),
      left_(world_ranks_.size()) {}

Side Group::post(int rank, Call call) {
  const auto self = static_cast<size_t>(rank);
  const std::lock_guard lock(job_->mutex);
  const int64_t number = ++numbers_[self];
  std::shared_ptr<Collective>& entry = incomplete_[number];
  if (!entry) entry = std::make_shared<Collective>(name_, number, size());
  const Side side{entry, rank};
  Collective& collective = *side.collective;

  call.bytes_sent.assign(world_ranks_.size(), 0);
  collective.calls[self] = std::move(call);
  if (job_->aborted) {
    job_->throw_aborted(
        detail::concat("[", collective.calls[self].op, "] ", describe(side)));
  }
  collective.calls[self].stage = Stage::kPosted;
  Job::Rank& state = job_->ranks[static_cast<size_t>(world_ranks_[self])];
  state.pending.push_back(side);
  state.last = side;

  if (++collective.posted < size()) return side;
  incomplete_.erase(number);
  if (const auto clash = disagreement(collective)) {
    job_->abort_locked(*clash);
  } else {
    job_->changed.notify_all();
  }
  return side;
}

void Group::wait(const Side& side) {
  const int world_rank = world_ranks_[static_cast<size_t>(side.rank)];
  const Clock::time_point deadline = Clock::now() + job_->deadline();
  bool late = false;
  std::unique_lock lock(job_->mutex);
  while (!job_->aborted) {
    if (side.collective->all_fetched()) return;
    if (job_->fetch_one(lock, world_rank)) continue;
    if (const auto missing = missing_for_ever(side)) {
      job_->abort_locked(*missing);
    } else if (late) {
      job_->abort_locked(overdue(side));
    } else {
      late =
          job_->changed.wait_until(lock, deadline) == std::cv_status::timeout;
    }
  }
  job_->drain(lock, side);
  job_->throw_aborted(detail::concat("[wait] ", describe(side)));
}

void Group::abandon(const Side& side) noexcept {
  std::unique_lock lock(job_->mutex);
  job_->abort_locked(detail::concat(
      describe(side), " was given up while an exception unwound"));
  job_->drain(lock, side);
}

void Group::leave(int rank) noexcept {
  const std::lock_guard lock(job_->mutex);
  left_[static_cast<size_t>(rank)] = true;
  job_->changed.notify_all();
}

std::shared_ptr<Group> Group::child(
    int64_t number,
    int rank,
    const std::vector<int>& colours,
    const std::string& name) {
  const int colour = colours[static_cast<size_t>(rank)];
  const std::lock_guard lock(job_->mutex);
  const auto entry = children_.try_emplace({number, colour}).first;
  Child& child = entry->second;
  if (!child.group) child.group = make_child(colour, colours, name);
  const std::shared_ptr<Group> group = child.group;
  if (++child.handed_out == group->size()) children_.erase(entry);
  return group;
}

std::shared_ptr<Group> Group::make_child(
    int colour, const std::vector<int>& colours, const std::string& name) {
  std::vector<int> world_ranks;
  std::vector<int> nodes; // [k]: the old number of the child's node k
  std::vector<int> node_of;
  for (size_t r = 0; r < colours.size(); ++r) {
    if (colours[r] != colour) continue;
    const auto node = std::find(nodes.begin(), nodes.end(), node_of_[r]);
    node_of.push_back(static_cast<int>(node - nodes.begin()));
    if (node == nodes.end()) nodes.push_back(node_of_[r]);
    world_ranks.push_back(world_ranks_[r]);
  }
  return std::make_shared<Group>(
      job_, name, std::move(world_ranks), std::move(node_of));
}

// Whether two ranks call different things, or one sends another what it does
// not expect; in words.
std::optional<std::string> Group::disagreement(
    const Collective& collective) const {
  const auto& calls = collective.calls;
  for (int r = 1; r < size(); ++r) {
    const Call& first = calls[0];
    const Call& other = calls[static_cast<size_t>(r)];
    if (first.op != other.op || first.label.phase != other.label.phase ||
        first.label.name != other.label.name) {
      return detail::concat(
          "rank 0 calls ",
          collective.describe(0),
          ", rank ",
          r,
          " calls ",
          collective.describe(r),
          " of ",
          name_);
    }
  }
  for (size_t p = 0; p < calls.size(); ++p) {
    for (size_t q = 0; q < calls.size(); ++q) {
      const int64_t sent = calls[p].to[q].bytes;
      const int64_t expected = calls[q].from[p].bytes;
      if (sent == expected) continue;
      return detail::concat(
          "rank ",
          p,
          " sends ",
          sent,
          " bytes to rank ",
          q,
          ", which expects ",
          expected,
          ": ",
          collective.describe(static_cast<int>(p)),
          " of ",
          name_);
    }
  }
  return std::nullopt;
}

// Whether a rank left that was to post this collective; in words.
std::optional<std::string> Group::missing_for_ever(const Side& side) const {
  for (size_t p = 0; p < left_.size(); ++p) {
    const bool absent = side.collective->calls[p].stage == Stage::kAbsent;
    if (!left_[p] || !absent) continue;
    return detail::concat(
        describe(side),
        " waits for rank ",
        p,
        ", which left after its last call, ",
        job_->last_call(world_ranks_[p]));
  }
  return std::nullopt;
}

std::string Group::overdue(const Side& side) const {
  const Collective& collective = *side.collective;
  std::ostringstream text;
  text << "rank " << side.rank << " waited " << job_->deadline_s << " s in "
       << collective.describe(side.rank) << " of " << name_;
  const char* separator = " for ";
  for (size_t p = 0; p < left_.size(); ++p) {
    const Stage stage = collective.calls[p].stage;
    if (stage == Stage::kAbsent) {
      text << separator << "rank " << p << ", whose last call was "
           << job_->last_call(world_ranks_[p]);
      separator = ", and for ";
    } else if (collective.all_posted() && stage != Stage::kFetched) {
      text << separator << "rank " << p
           << ", which posted it but has not fetched its part, and whose last "
              "call was "
           << job_->last_call(world_ranks_[p]);
      separator = ", and for ";
    }
  }
  return text.str();
}

std::string Group::describe(const Side& side) const {
  return detail::concat(
      "rank ",
      side.rank,
      " in ",
      side.collective->describe(side.rank),
      " of ",
      name_);
}

} // namespace laga::threads
