#include "laga/comm/mpi/mpi.h"

#include "laga/comm/arguments.h"
#include "laga/comm/mpi/group.h"
#include "laga/core/check.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <numeric>
#include <thread>
#include <utility>

namespace laga {

namespace mpi {

namespace {

class MpiWork : public Work {
 public:
  MpiWork(std::shared_ptr<Group> group, std::shared_ptr<Operation> operation)
      : group_(std::move(group)),
        operation_(std::move(operation)),
        exceptions_(std::uncaught_exceptions()) {}

  ~MpiWork() override {
    if (over_) return;
    if (std::uncaught_exceptions() > exceptions_) {
      group_->abandon(*operation_);
      return;
    }
    try {
      group_->wait(*operation_);
    } catch (...) {
      // The world is aborted by now: the rank's next call throws.
    }
  }

  void wait() override {
    if (done_) return;
    over_ = true; // whether it succeeds or not, the buffers are free then
    group_->wait(*operation_);
    done_ = true;
  }

  std::vector<int64_t> bytes_sent() const override {
    return operation_->bytes_sent();
  }

 private:
  const std::shared_ptr<Group> group_;
  const std::shared_ptr<Operation> operation_;
  const int exceptions_; // under way when this was made
  bool over_ = false;
  bool done_ = false;
};

class MpiCommunicator : public Communicator {
 public:
  explicit MpiCommunicator(std::shared_ptr<Group> group)
      : group_(std::move(group)) {}

  int rank() const override {
    return group_->rank();
  }
  int size() const override {
    return group_->size();
  }
  const std::string& name() const override {
    return group_->name();
  }
  int node_of(int rank) const override {
    LAGA_CHECK(rank >= 0 && rank < size(), "rank ", rank, " of ", size());
    return group_->node_of(rank);
  }

  std::unique_ptr<Work> all_to_all(
      const Label& label,
      ConstBytes send,
      std::span<const Part> to,
      Bytes recv,
      std::span<const Part> from) override {
    check_all_to_all(*this, label, send, to, recv, from);
    return start(
        {"all_to_all",
         label,
         send,
         {to.begin(), to.end()},
         recv,
         {from.begin(), from.end()}});
  }

  std::unique_ptr<Work> all_gather(
      const Label& label,
      ConstBytes shard,
      Bytes all,
      std::span<const Part> from) override {
    check_all_gather(*this, label, shard, all, from);
    const Part whole{0, static_cast<int64_t>(shard.size())};
    return start(
        {"all_gather",
         label,
         shard,
         std::vector<Part>(from.size(), whole),
         all,
         {from.begin(), from.end()}});
  }

  void barrier(const Label& label) override {
    const std::vector<Part> nothing(static_cast<size_t>(size()));
    start({"barrier", label, {}, nothing, {}, nothing})->wait();
  }

  std::shared_ptr<Communicator> split(int colour, std::string name) override {
    LAGA_CHECK_GE(colour, 0, "Rank ", rank(), " of ", this->name());
    std::vector<int> colours(static_cast<size_t>(size()));
    std::vector<Part> from;
    for (size_t p = 0; p < colours.size(); ++p) {
      from.push_back({static_cast<int64_t>(p * sizeof(int)), sizeof(int)});
    }
    const std::span<const int> own(&colour, 1);
    const std::span<int> all(colours);
    const auto operation = group_->post(
        {"all_gather",
         {Phase::kForward, "split:" + name},
         std::as_bytes(own),
         std::vector<Part>(colours.size(), {0, sizeof(int)}),
         std::as_writable_bytes(all),
         from});
    group_->wait(*operation);
    return std::make_shared<MpiCommunicator>(
        group_->child(operation->key().number, colours, name));
  }

  void abort(std::string_view reason) noexcept override {
    group_->abort(reason);
  }

 private:
  std::unique_ptr<Work> start(Call call) {
    return std::make_unique<MpiWork>(group_, group_->post(std::move(call)));
  }

  const std::shared_ptr<Group> group_;
};

// The last world, for the end of the run.
std::shared_ptr<Group>& last_world() {
  static auto* const world = new std::shared_ptr<Group>; // outlives all users
  return *world;
}

std::vector<int> layout(const Transport& transport, const MpiOptions& options) {
  if (options.node_of.empty()) return transport.node_of();
  LAGA_CHECK_EQ(
      options.node_of.size(),
      static_cast<size_t>(transport.size()),
      "node_of has an entry per rank");
  return numbered_anew(options.node_of);
}

} // namespace

} // namespace mpi

bool launched_by_mpi() {
  // Open MPI's, MPICH's and Slurm's with PMIx.
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK"}) {
    if (std::getenv(name) != nullptr) return true;
  }
  return false;
}

int launched_rank() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"}) {
    const char* rank = std::getenv(name);
    if (rank != nullptr) return std::atoi(rank);
  }
  return 0;
}

bool built_with_mpi() {
  return true;
}

std::shared_ptr<Communicator> mpi_world(const MpiOptions& options) {
  LAGA_CHECK_GT(options.deadline_s, 0, "Deadline of an MPI world");
  LAGA_CHECK(
      options.largest_message_bytes >= 1 &&
          options.largest_message_bytes <= INT32_MAX,
      "largest_message_bytes is ",
      options.largest_message_bytes,
      ", MPI takes 1 to ",
      INT32_MAX);
  mpi::Transport& transport = mpi::Transport::instance();
  const auto lock = transport.lock();
  const std::vector<int> node_of = mpi::layout(transport, options);
  const int32_t world = transport.next_world();
  std::vector<int> world_ranks(static_cast<size_t>(transport.size()));
  std::iota(world_ranks.begin(), world_ranks.end(), 0);
  const auto group = std::make_shared<mpi::Group>(
      transport,
      world,
      mpi::hash_of(0, static_cast<uint64_t>(world)),
      "world",
      mpi::Group::Limits{options.deadline_s, options.largest_message_bytes},
      transport.rank(),
      world_ranks,
      node_of);
  mpi::last_world() = group;
  return std::make_shared<mpi::MpiCommunicator>(group);
}

void mpi_finalize() {
  mpi::Transport* transport = mpi::Transport::if_started();
  if (transport == nullptr) return;
  const auto group = mpi::last_world();
  if (group) {
    mpi::MpiCommunicator(group).barrier({Phase::kForward, "mpi_finalize"});
  }
  mpi::last_world().reset();
  transport->finalize();
}

void mpi_abort(int exit_code) {
  std::fflush(nullptr);
  mpi::Transport* transport = mpi::Transport::if_started();
  if (transport == nullptr) std::_Exit(exit_code);
  // Whoever was only told to end gives way to the cause, whose exit code is the
  // one to keep.
  constexpr std::chrono::seconds kLastWords{1};
  bool cause = true;
  if (const auto group = mpi::last_world()) {
    group->abort(detail::concat(
        "rank ", group->rank(), " ends the run with exit code ", exit_code));
    const auto lock = transport->lock();
    cause = transport->aborted_here(group->world());
  }
  std::this_thread::sleep_for(cause ? kLastWords : 2 * kLastWords);
  std::fflush(nullptr);
  transport->end_run(exit_code);
}

} // namespace laga
