// Sequence parallelism that this library does not run, planned by its formulas
// so that it can be compared: what users of Megatron-Core have today, and two
// forms that send still less than LAGA.
#pragma once

#include "laga/core/run_shape.h"
#include "laga/plan/bytes.h"
#include "laga/plan/tape.h"
#include "laga/plan/work.h"

#include <string>
#include <vector>

namespace laga {

struct PlannedForm {
  std::string name;
  std::string why_not = {}; // it cannot be used here; then the rest is empty
  std::vector<Transfer> transfers = {};
  std::vector<WorkPart> work = {};
  MemoryTape tape =
      {}; // attention by a kernel without score buffers or scratch
};

/// For the rank of `shape` that sends most to other nodes, ranks node by node,
/// `ranks_per_node` on each:
///   "kv ring" (cp_comm_type p2p): expanded K and V go round, P - 1 times in
///     the forward, and with their gradients in the backward;
///   "kv all-gather" (all_gather): K and V of all heads gathered, in the
///     backward once more, and their gradients reduce-scattered;
///   "kv a2a+p2p" (a2a+p2p): heads by all-to-all inside a node, a ring across;
///   "query-latent": LAGA that gathers the queries' latent too (paper.md);
///   "grid U x R": queries and output by all-to-all inside groups of U ranks,
///     the latent gathered over all P = U R; each rank expands its n / U heads,
///     R ranks the same ones. U: the ranks of a node.
/// Causal work is balanced over ranks (zigzag order) in all of them.
std::vector<PlannedForm> planned_forms(
    const MlaConfig& config,
    const RunShape& shape,
    int ranks_per_node,
    bool causal = true);

} // namespace laga
