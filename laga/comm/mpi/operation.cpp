#include "laga/comm/mpi/operation.h"

#include "laga/comm/mpi/group.h"
#include "laga/core/check.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace laga::mpi {

Operation::Operation(std::shared_ptr<Group> group, int64_t number, Call call)
    : group_(std::move(group)),
      number_(number),
      call_(std::move(call)),
      peers_(static_cast<size_t>(group_->size())) {
  const auto self = static_cast<size_t>(group_->rank());
  peers_[self].call = announcement();
  heard_ = 1;
}

void Operation::copy_own_part() const {
  const auto self = static_cast<size_t>(group_->rank());
  const Part& part = call_.from[self];
  if (part.bytes == 0) return;
  const std::byte* source = call_.send.data() + call_.to[self].offset;
  std::byte* target = call_.recv.data() + part.offset;
  if (source == target) return; // in place
  std::memcpy(target, source, static_cast<size_t>(part.bytes));
}

CallKey Operation::key() const {
  return {group_->id(), number_};
}

Message Operation::announcement() const {
  Message message;
  message.kind = Kind::kCall;
  message.world = group_->world();
  message.text = call_.label.name;
  message.group = group_->id();
  message.number = number_;
  message.phase = call_.label.phase;
  message.op = call_.op;
  message.group_name = group_->name();
  message.text_hash = hash_of(call_.label.name);
  for (const Part& part : call_.to)
    message.bytes_to.push_back(part.bytes);
  for (const Part& part : call_.from)
    message.bytes_from.push_back(part.bytes);
  return message;
}

// Starts with the next neighbour, so that not all ranks write to rank 0 first.
void Operation::announce(int tag) {
  tag_ = tag;
  const int self = group_->rank();
  const int size = group_->size();
  Message message = *peers_[static_cast<size_t>(self)].call;
  message.tag = tag;
  for (int step = 1; step < size; ++step) {
    group_->transport().send(group_->world_rank((self + step) % size), message);
  }
}

void Operation::hear(int world_rank, Message theirs) {
  const auto peer = static_cast<size_t>(group_->rank_of(world_rank));
  peers_[peer].call = std::move(theirs);
  ++heard_;
  const auto self = static_cast<size_t>(group_->rank());
  if (same_call(*peers_[self].call, *peers_[peer].call) && sizes_agree(peer)) {
    exchange(peer);
  }
  if (!all_heard()) return;
  if (const auto clash = disagreement()) {
    group_->transport().abort(group_->world(), *clash);
  }
}

bool Operation::sizes_agree(size_t peer) const {
  const auto self = static_cast<size_t>(group_->rank());
  const Message& theirs = *peers_[peer].call;
  return theirs.bytes_to[self] == call_.from[peer].bytes &&
         theirs.bytes_from[self] == call_.to[peer].bytes;
}

void Operation::exchange(size_t peer) {
  Transport& transport = group_->transport();
  const int world_rank = group_->world_rank(static_cast<int>(peer));
  const int64_t largest = group_->largest_message_bytes();
  // Pieces of one tag arrive in the order in which they are sent.
  const auto in_pieces = [&](const Part& part, const auto& start) {
    for (int64_t done = 0; done < part.bytes; done += largest) {
      const int64_t bytes = std::min(largest, part.bytes - done);
      start(
          static_cast<size_t>(part.offset + done), static_cast<size_t>(bytes));
    }
  };
  in_pieces(call_.from[peer], [&](size_t offset, size_t bytes) {
    requests_.push_back(transport.start_receiving(
        call_.recv.subspan(offset, bytes), world_rank, tag_));
    pieces_.push_back({static_cast<int>(peer), false});
  });
  in_pieces(call_.to[peer], [&](size_t offset, size_t bytes) {
    requests_.push_back(transport.start_sending(
        call_.send.subspan(offset, bytes), world_rank, peers_[peer].call->tag));
    pieces_.push_back({static_cast<int>(peer), true});
    peers_[peer].bytes_sent += static_cast<int64_t>(bytes);
  });
}

void Operation::test() {
  group_->transport().test(requests_);
  size_t kept = 0;
  for (size_t i = 0; i < requests_.size(); ++i) {
    if (requests_[i] == MPI_REQUEST_NULL) continue;
    requests_[kept] = requests_[i];
    pieces_[kept] = pieces_[i];
    ++kept;
  }
  requests_.resize(kept);
  pieces_.resize(kept);
}

std::vector<int64_t> Operation::bytes_sent() const {
  std::vector<int64_t> result;
  for (const Peer& peer : peers_)
    result.push_back(peer.bytes_sent);
  return result;
}

// Whether two ranks call different things, or one sends another what it does
// not expect; in words. Every rank has heard all of them and says the same.
std::optional<std::string> Operation::disagreement() const {
  const Message& first = *peers_[0].call;
  for (size_t r = 1; r < peers_.size(); ++r) {
    const Message& other = *peers_[r].call;
    if (same_call(first, other)) continue;
    return detail::concat(
        "rank 0 calls ",
        mpi::describe(first),
        ", rank ",
        r,
        " calls ",
        mpi::describe(other),
        " of ",
        group_->name());
  }
  for (size_t p = 0; p < peers_.size(); ++p) {
    for (size_t q = 0; q < peers_.size(); ++q) {
      const int64_t sent = peers_[p].call->bytes_to[q];
      const int64_t expected = peers_[q].call->bytes_from[p];
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
          mpi::describe(*peers_[p].call),
          " of ",
          group_->name());
    }
  }
  return std::nullopt;
}

std::string Operation::describe() const {
  const auto self = static_cast<size_t>(group_->rank());
  return detail::concat(
      "rank ",
      self,
      " in ",
      mpi::describe(*peers_[self].call),
      " of ",
      group_->name());
}

std::string Operation::overdue() const {
  const auto self = static_cast<size_t>(group_->rank());
  std::string text = detail::concat(
      "rank ",
      self,
      " waited ",
      group_->deadline_s(),
      " s in ",
      mpi::describe(*peers_[self].call),
      " of ",
      group_->name());
  const char* separator = " for ";
  for (int p = 0; p < group_->size(); ++p) {
    const std::string missing = missing_from(p);
    if (missing.empty()) continue;
    text += detail::concat(separator, "rank ", p, ", ", missing);
    separator = ", and for ";
  }
  return text;
}

// Why `peer` is being waited for; "" if it is not.
std::string Operation::missing_from(int peer) const {
  const auto p = static_cast<size_t>(peer);
  if (!peers_[p].call) {
    return "whose last call was " +
           group_->transport().last_call(group_->world_rank(peer));
  }
  bool to = false;
  bool from = false;
  for (const Piece& piece : pieces_) {
    if (piece.peer == peer) (piece.sent ? to : from) = true;
  }
  if (!to && !from) return "";
  std::string text = "which posted it but ";
  if (from) {
    text += detail::concat(
        "whose ", call_.from[p].bytes, " bytes have not all arrived");
  }
  if (from && to) text += " and which ";
  if (to) {
    text += detail::concat(
        "has not taken all of the ", call_.to[p].bytes, " bytes for it");
  }
  return text;
}

} // namespace laga::mpi
