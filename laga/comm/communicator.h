// One rank's view of a group of ranks. Backends only move bytes; sums are built
// once on top of them (comm/reduce.h), in an order that the group's layout
// fixes.
#pragma once

#include "laga/core/transfer.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace laga {

using ConstBytes = std::span<const std::byte>;
using Bytes = std::span<std::byte>;

/// Says which call this is. It travels with the data: ranks that call different
/// things, or with sizes that do not fit, all raise.
struct Label {
  Phase phase;
  std::string name; // "q", "latent", "d_out", a parameter's name
};

/// What goes to or comes from one peer, in bytes. 0 bytes are allowed.
struct Part {
  int64_t offset;
  int64_t bytes;
};

/// A transfer under way. Its buffers must outlive it. Destroyed without wait(),
/// it waits; while an exception unwinds the stack, it aborts the group instead.
class Work {
 public:
  virtual ~Work() = default;
  Work() = default;
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;

  /// Returns when everything for this rank has arrived and its own send buffer
  /// is free again. Throws CommError, naming the call, if a peer failed, left,
  /// called something else or the deadline passed.
  virtual void wait() = 0;

  /// Bytes per peer, counted where they were copied or sent; the own slice is
  /// 0. Valid after wait().
  virtual std::vector<int64_t> bytes_sent() const = 0;
};

/// Every rank makes the same calls in the same order. All calls throw
/// InvalidArgument for impossible arguments before anything is sent.
class Communicator {
 public:
  virtual ~Communicator() = default;
  Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual const std::string& name() const = 0; // "world", or split's
  virtual int node_of(int rank) const = 0;     // node numbers start at 0

  /// send[to[p]] goes to rank p, recv[from[p]] comes from it; the own part is
  /// copied. `to` and `from` have size() entries. Sends sum(to) - to[rank()].
  [[nodiscard]] virtual std::unique_ptr<Work> all_to_all(
      const Label& label,
      ConstBytes send,
      std::span<const Part> to,
      Bytes recv,
      std::span<const Part> from) = 0;

  /// `shard` of rank p lands in all[from[p]] of every rank. The own shard may
  /// already lie in its place. Sends (size() - 1) * shard.size() bytes.
  [[nodiscard]] virtual std::unique_ptr<Work> all_gather(
      const Label& label,
      ConstBytes shard,
      Bytes all,
      std::span<const Part> from) = 0;

  virtual void barrier(const Label& label) = 0;

  /// Ranks of one colour (0 or more) form a group, ordered by rank; its nodes
  /// are numbered anew, by first appearance. Collective: all ranks, of whatever
  /// colour, give the same name.
  virtual std::shared_ptr<Communicator> split(int colour, std::string name) = 0;

  /// Wakes every rank of the job with a CommError that carries `reason`.
  virtual void abort(std::string_view reason) noexcept = 0;
};

} // namespace laga
