#include "laga/comm/threads/threads.h"

#include "laga/comm/arguments.h"
#include "laga/comm/threads/group.h"
#include "laga/comm/threads/world.h"

#include <algorithm>
#include <exception>
#include <numeric>
#include <utility>

namespace laga {

namespace threads {

namespace {

class ThreadWork : public Work {
 public:
  ThreadWork(std::shared_ptr<Group> group, Side side)
      : group_(std::move(group)),
        side_(std::move(side)),
        exceptions_(std::uncaught_exceptions()) {}

  ~ThreadWork() override {
    if (done_) return;
    if (std::uncaught_exceptions() > exceptions_) {
      group_->abandon(side_);
      return;
    }
    try {
      group_->wait(side_);
    } catch (...) {
      // The job is aborted by now: the rank's next call throws.
    }
  }

  void wait() override {
    if (done_) return;
    group_->wait(side_);
    done_ = true;
  }

  std::vector<int64_t> bytes_sent() const override {
    return side_.collective->calls[static_cast<size_t>(side_.rank)].bytes_sent;
  }

 private:
  const std::shared_ptr<Group> group_;
  const Side side_;
  const int exceptions_; // under way when this was made
  bool done_ = false;
};

class ThreadCommunicator : public Communicator {
 public:
  ThreadCommunicator(std::shared_ptr<Group> group, int rank)
      : group_(std::move(group)), rank_(rank) {}

  ~ThreadCommunicator() override {
    group_->leave(rank_);
  }

  int rank() const override {
    return rank_;
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
    LAGA_CHECK_GE(colour, 0, "Rank ", rank_, " of ", this->name());
    std::vector<int> colours(static_cast<size_t>(size()));
    std::vector<Part> from;
    for (size_t p = 0; p < colours.size(); ++p) {
      from.push_back({static_cast<int64_t>(p * sizeof(int)), sizeof(int)});
    }
    const std::span<const int> own(&colour, 1);
    const std::span<int> all(colours);
    const Side side = group_->post(
        rank_,
        {"all_gather",
         {Phase::kForward, "split:" + name},
         std::as_bytes(own),
         std::vector<Part>(colours.size(), {0, sizeof(int)}),
         std::as_writable_bytes(all),
         from});
    group_->wait(side);
    const auto before_me = colours.begin() + rank_;
    return std::make_shared<ThreadCommunicator>(
        group_->child(side.collective->number, rank_, colours, name),
        static_cast<int>(std::count(colours.begin(), before_me, colour)));
  }

  void abort(std::string_view reason) noexcept override {
    group_->job()->abort(reason);
  }

 private:
  std::unique_ptr<Work> start(Call call) {
    return std::make_unique<ThreadWork>(
        group_, group_->post(rank_, std::move(call)));
  }

  const std::shared_ptr<Group> group_;
  const int rank_;
};

void check_options(const ThreadGroupOptions& options) {
  LAGA_CHECK_GE(options.ranks, 1, "Ranks of a thread group");
  LAGA_CHECK_GT(options.deadline_s, 0, "Deadline of a thread group");
  const std::vector<int>& nodes = options.node_of;
  if (nodes.empty()) return;
  LAGA_CHECK_EQ(
      nodes.size(),
      static_cast<size_t>(options.ranks),
      "node_of has an entry per rank");
  const int largest = *std::max_element(nodes.begin(), nodes.end());
  LAGA_CHECK_LT(largest, options.ranks, "Node numbers start at 0");
  for (int node = 0; node <= largest; ++node) {
    LAGA_CHECK(
        std::find(nodes.begin(), nodes.end(), node) != nodes.end(),
        "Node ",
        node,
        " has no rank, the largest is ",
        largest);
  }
  LAGA_CHECK_GE(
      *std::min_element(nodes.begin(), nodes.end()),
      0,
      "Node numbers start at 0");
}

} // namespace

World make_world(const ThreadGroupOptions& options) {
  check_options(options);
  const auto ranks = static_cast<size_t>(options.ranks);
  World world{std::make_shared<Job>(options.ranks, options.deadline_s), {}};
  std::vector<int> world_ranks(ranks);
  std::iota(world_ranks.begin(), world_ranks.end(), 0);
  const auto group = std::make_shared<Group>(
      world.job,
      "world",
      world_ranks,
      options.node_of.empty() ? std::vector<int>(ranks) : options.node_of);
  for (int r : world_ranks) {
    world.communicators.push_back(
        std::make_shared<ThreadCommunicator>(group, r));
  }
  return world;
}

} // namespace threads

std::vector<std::shared_ptr<Communicator>> make_thread_group(
    const ThreadGroupOptions& options) {
  return threads::make_world(options).communicators;
}

} // namespace laga
