// Sums over a group, built on all_to_all and all_gather. The order of the
// additions is fixed by the group's layout alone, so equal layouts give equal
// bits whatever the transport, the number of threads or the run.
#pragma once

#include "laga/comm/communicator.h"
#include "laga/core/dtype.h"

#include <functional>

namespace laga {

/// out[i] = sum over p of parts[p][i], for `count` numbers. `nodes[p]` is the
/// node of rank p. `out` may be parts[p] itself for one p.
using SumFunction = std::function<void(
    Dtype dtype,
    std::span<const std::byte* const> parts,
    std::span<const int> nodes,
    std::byte* out,
    int64_t count)>;

/// The SumFunction of the CPU. Inside a node in rank order, with fp32
/// accumulators for bf16 and fp32, fp64 for fp64; rounded once to the dtype;
/// then node by node (in order of the node's first rank) the same way. One
/// node: one sum, rounded once.
void sum_in_layout_order(
    Dtype dtype,
    std::span<const std::byte* const> parts,
    std::span<const int> nodes,
    std::byte* out,
    int64_t count);

/// Rank p's share of `count` numbers: count / size, one more for the first
/// count % size ranks.
struct Share {
  int64_t begin;
  int64_t count;
};
Share share_of(int64_t count, int ranks, int rank);

/// A reduce-scatter under way: rank p ends with the sum of everybody's share p.
/// An all-to-all plus an ordered local sum: it sends what a ring sends,
/// count - own share numbers, and needs `scratch` for what arrives. Larger
/// ones go in chunks that fit into the scratch, with the same bits.
class ReduceScatter {
 public:
  /// send: `count` numbers, shares in rank order (share_of). out: the own
  /// share; may be that part of send. scratch: at least (size - 1) numbers, of
  /// one size on all ranks (with one rank, or no numbers, it may be empty).
  /// Buffers must outlive wait(). Posts the first chunk; with one rank there is
  /// nothing to send, and out is written at once.
  ReduceScatter(
      std::shared_ptr<Communicator> comm,
      Label label,
      Dtype dtype,
      ConstBytes send,
      Bytes out,
      Bytes scratch,
      SumFunction sum = sum_in_layout_order);

  /// Adds up what arrives, posting the remaining chunks. Every rank must call
  /// it; destroyed before, only the chunk under way is waited for.
  void wait();
  std::vector<int64_t> bytes_sent() const; // per peer, valid after wait()

 private:
  Share chunk_of(int p) const;
  int64_t slot_of(int p) const;
  void post();
  void sum_parts(int64_t count);

  std::shared_ptr<Communicator> comm_;
  Label label_;
  Dtype dtype_;
  ConstBytes send_;
  Bytes out_;
  Bytes scratch_;
  SumFunction sum_;
  int64_t largest_share_ = 0; // rank 0's: it needs the most chunks
  int64_t chunk_ = 0;         // numbers of each share that fit into the scratch
  int64_t done_ = 0;          // numbers of each share already summed
  std::unique_ptr<Work> work_;
  std::vector<int64_t> bytes_sent_;
};

/// buffer becomes the sum of everybody's, on all ranks alike: a reduce-scatter
/// and an all-gather in place. Rank r sends count + (size - 2) * share_r
/// numbers: 2 count (size - 1) / size where the size divides the count.
/// Returns the bytes sent per peer.
std::vector<int64_t> all_reduce(
    const std::shared_ptr<Communicator>& comm,
    const Label& label,
    Dtype dtype,
    Bytes buffer,
    Bytes scratch,
    const SumFunction& sum = sum_in_layout_order);

} // namespace laga
