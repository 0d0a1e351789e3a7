// One group of a job's ranks: matches their calls by number, compares them and
// waits for them.
#pragma once

#include "laga/comm/threads/job.h"

#include <map>
#include <optional>

namespace laga::threads {

class Group {
 public:
  /// world_ranks[r], node_of[r]: of the group's rank r.
  Group(
      std::shared_ptr<Job> job,
      std::string name,
      std::vector<int> world_ranks,
      std::vector<int> node_of);

  const std::shared_ptr<Job>& job() const {
    return job_;
  }
  const std::string& name() const {
    return name_;
  }
  int size() const {
    return static_cast<int>(world_ranks_.size());
  }
  int node_of(int rank) const {
    return node_of_[static_cast<size_t>(rank)];
  }

  /// Makes the rank's next call visible to its peers. The last to post compares
  /// all of them before anybody copies; if two differ, the job is aborted.
  Side post(int rank, Call call);

  /// Until everybody has fetched everything of this collective: then all has
  /// arrived and nobody reads from this rank's buffer any more. Meanwhile
  /// fetches whatever else this rank has posted, so that ranks may wait for
  /// several calls in different orders.
  void wait(const Side& side);

  /// Gives a call up: aborts, and returns when its buffers are free.
  void abandon(const Side& side) noexcept;

  /// The rank will make no further call: whoever waits for one is told.
  void leave(int rank) noexcept;

  /// The group of all ranks whose colour is that of `rank`; the same object for
  /// all of them. `number`: of the call that exchanged the colours.
  std::shared_ptr<Group> child(
      int64_t number,
      int rank,
      const std::vector<int>& colours,
      const std::string& name);

 private:
  struct Child {
    std::shared_ptr<Group> group;
    int handed_out = 0;
  };

  std::shared_ptr<Group> make_child(
      int colour, const std::vector<int>& colours, const std::string& name);
  std::optional<std::string> disagreement(const Collective& collective) const;
  std::optional<std::string> missing_for_ever(const Side& side) const;
  std::string overdue(const Side& side) const;
  std::string describe(const Side& side) const;

  const std::shared_ptr<Job> job_;
  const std::string name_;
  const std::vector<int> world_ranks_;
  const std::vector<int> node_of_;
  // Guarded by the job's mutex.
  std::vector<int64_t> numbers_; // by rank: of its last call
  std::vector<bool> left_;       // by rank
  std::map<int64_t, std::shared_ptr<Collective>> incomplete_; // by number
  std::map<std::pair<int64_t, int>, Child> children_; // by number and colour
};

} // namespace laga::threads
