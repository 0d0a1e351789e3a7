// One collective under way, as one rank sees it.
#pragma once

#include "laga/comm/mpi/transport.h"

#include <optional>

namespace laga::mpi {

class Group;

/// What the rank gave to a collective.
struct Call {
  std::string op; // "all_to_all", "all_gather", "barrier"
  Label label;
  ConstBytes send;
  std::vector<Part> to;
  Bytes recv;
  std::vector<Part> from;
};

/// Every rank announces its call to every peer, with what it sends and expects.
/// Data moves between two ranks as soon as each has heard the other and both
/// agree. So data of different calls never pairs, and a rank that does not come
/// leaves no transfer that could not be given up.
///
/// Cost a rank: size() - 1 announcements of 100 + 16 size() bytes or so, then
/// its data, with all peers at the same time; no scratch.
///
/// Callers hold the transport's lock, except where said.
class Operation {
 public:
  Operation(std::shared_ptr<Group> group, int64_t number, Call call);

  /// Needs no lock.
  void copy_own_part() const;
  CallKey key() const;
  void announce(int tag);
  void hear(int world_rank, Message theirs);
  void test();

  bool all_heard() const {
    return heard_ == static_cast<int>(peers_.size());
  }
  bool transfers_done() const {
    return requests_.empty();
  }
  bool finished() const {
    return all_heard() && transfers_done();
  }
  std::vector<int64_t> bytes_sent() const;

  /// "rank 1 in forward/q all_to_all (#3) of world"
  std::string describe() const;
  /// Who is missing, or has come without its data having moved; in words.
  std::string overdue() const;

 private:
  struct Peer {
    std::optional<Message> call; // what it announced; the own one, too
    int64_t bytes_sent = 0;
  };
  struct Piece { // of one request
    int peer;
    bool sent; // or received
  };

  bool sizes_agree(size_t peer) const;
  void exchange(size_t peer);
  std::optional<std::string> disagreement() const;
  std::string missing_from(int peer) const;
  Message announcement() const;

  const std::shared_ptr<Group> group_;
  const int64_t number_;
  const Call call_;
  int tag_ = 0;
  std::vector<Peer> peers_; // by rank in the group
  int heard_ = 0;
  std::vector<MPI_Request> requests_;
  std::vector<Piece> pieces_; // [i]: of requests_[i]
};

} // namespace laga::mpi
