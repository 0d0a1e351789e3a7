// One group of ranks as one of them sees it: numbers its calls and waits for
// them. Others of the group know it by its id, which every member works out for
// itself; making a group needs no MPI communicator.
#pragma once

#include "laga/comm/mpi/operation.h"

namespace laga::mpi {

class Group : public std::enable_shared_from_this<Group> {
 public:
  struct Limits {
    double deadline_s;
    int64_t largest_message_bytes;
  };

  /// The `rank`-th of `world_ranks`. node_of[r]: of the group's rank r.
  Group(
      Transport& transport,
      int32_t world,
      uint64_t id,
      std::string name,
      Limits limits,
      int rank,
      std::vector<int> world_ranks,
      std::vector<int> node_of);

  Transport& transport() const {
    return transport_;
  }
  int32_t world() const {
    return world_;
  }
  uint64_t id() const {
    return id_;
  }
  const std::string& name() const {
    return name_;
  }
  int rank() const {
    return rank_;
  }
  int size() const {
    return static_cast<int>(world_ranks_.size());
  }
  int node_of(int rank) const {
    return node_of_[static_cast<size_t>(rank)];
  }
  int world_rank(int rank) const {
    return world_ranks_[static_cast<size_t>(rank)];
  }
  int rank_of(int world_rank) const;
  double deadline_s() const {
    return limits_.deadline_s;
  }
  int64_t largest_message_bytes() const {
    return limits_.largest_message_bytes;
  }

  /// Tells the peers of the rank's next call.
  std::shared_ptr<Operation> post(Call call);

  /// Until everything of this rank has been sent and has arrived.
  void wait(Operation& operation);

  /// Gives a call up: aborts, and returns when its buffers are free.
  void abandon(Operation& operation) noexcept;

  void abort(std::string_view reason) noexcept;

  /// The group of all ranks whose colour is this rank's. `number`: of the call
  /// that exchanged the colours.
  std::shared_ptr<Group> child(
      int64_t number,
      const std::vector<int>& colours,
      const std::string& name) const;

 private:
  void settle(Lock& lock, Operation& operation);

  Transport& transport_;
  const int32_t world_;
  const uint64_t id_;
  const std::string name_;
  const Limits limits_;
  const int rank_;
  const std::vector<int> world_ranks_;
  const std::vector<int> node_of_;
  int64_t number_ = 0; // of the last call; guarded by the transport's lock
};

} // namespace laga::mpi
