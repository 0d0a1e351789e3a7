#include "laga/comm/ghost/ghost.h"

#include "laga/comm/arguments.h"
#include "laga/core/check.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace laga {

namespace {

class Done : public Work {
 public:
  explicit Done(std::vector<int64_t> bytes_sent)
      : bytes_sent_(std::move(bytes_sent)) {}
  void wait() override {}
  std::vector<int64_t> bytes_sent() const override {
    return bytes_sent_;
  }

 private:
  std::vector<int64_t> bytes_sent_;
};

// Repeats `own` as often as `target` takes, from its start.
void fill(Bytes target, ConstBytes own) {
  if (own.empty()) {
    std::fill(target.begin(), target.end(), std::byte{0});
    return;
  }
  for (size_t begin = 0; begin < target.size(); begin += own.size()) {
    const size_t count = std::min(own.size(), target.size() - begin);
    std::memmove(target.data() + begin, own.data(), count);
  }
}

Bytes slice(Bytes bytes, const Part& part) {
  return bytes.subspan(
      static_cast<size_t>(part.offset), static_cast<size_t>(part.bytes));
}
ConstBytes slice(ConstBytes bytes, const Part& part) {
  return bytes.subspan(
      static_cast<size_t>(part.offset), static_cast<size_t>(part.bytes));
}

class Ghost : public Communicator {
 public:
  Ghost(int rank, std::string name, std::vector<int> node_of)
      : rank_(rank), name_(std::move(name)), node_of_(std::move(node_of)) {}

  int rank() const override {
    return rank_;
  }
  int size() const override {
    return static_cast<int>(node_of_.size());
  }
  const std::string& name() const override {
    return name_;
  }
  int node_of(int rank) const override {
    LAGA_CHECK(rank >= 0 && rank < size(), "rank ", rank, " of ", size());
    return node_of_[static_cast<size_t>(rank)];
  }

  std::unique_ptr<Work> all_to_all(
      const Label& label,
      ConstBytes send,
      std::span<const Part> to,
      Bytes recv,
      std::span<const Part> from) override {
    check_all_to_all(*this, label, send, to, recv, from);
    const auto self = static_cast<size_t>(rank_);
    std::vector<int64_t> sent;
    for (size_t p = 0; p < to.size(); ++p) {
      sent.push_back(p == self ? 0 : to[p].bytes);
      fill(slice(recv, from[p]), slice(send, to[p]));
    }
    return std::make_unique<Done>(std::move(sent));
  }

  std::unique_ptr<Work> all_gather(
      const Label& label,
      ConstBytes shard,
      Bytes all,
      std::span<const Part> from) override {
    check_all_gather(*this, label, shard, all, from);
    std::vector<int64_t> sent(from.size(), static_cast<int64_t>(shard.size()));
    sent[static_cast<size_t>(rank_)] = 0;
    for (const Part& part : from) {
      fill(slice(all, part), shard);
    }
    return std::make_unique<Done>(std::move(sent));
  }

  void barrier(const Label& /*label*/) override {}

  // Nobody else has a colour: the ghost is alone in its group.
  std::shared_ptr<Communicator> split(int colour, std::string name) override {
    LAGA_CHECK_GE(colour, 0, "Rank ", rank_, " of ", name_);
    return std::make_shared<Ghost>(0, std::move(name), std::vector<int>{0});
  }

  void abort(std::string_view /*reason*/) noexcept override {}

 private:
  const int rank_;
  const std::string name_;
  const std::vector<int> node_of_;
};

} // namespace

std::shared_ptr<Communicator> make_ghost(
    int rank, int ranks, std::vector<int> node_of) {
  LAGA_CHECK_GE(ranks, 1, "a group has at least one rank");
  LAGA_CHECK(rank >= 0 && rank < ranks, "rank ", rank, " of ", ranks, " ranks");
  if (node_of.empty()) node_of.resize(static_cast<size_t>(ranks));
  LAGA_CHECK_EQ(
      node_of.size(), static_cast<size_t>(ranks), "a node for each rank");
  return std::make_shared<Ghost>(rank, "world", std::move(node_of));
}

} // namespace laga
