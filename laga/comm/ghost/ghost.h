// One rank of P, alone: its buffers, its calls and its bytes are those of a
// real run, but nobody is there. So one rank of a large job can be measured at
// full size on one machine.
#pragma once

#include "laga/comm/communicator.h"

namespace laga {

/// Rank `rank` of `ranks`. What peers would send is filled with this rank's own
/// bytes: finite numbers of the right size, not results. Calls complete at once
/// and count what they would have sent. `node_of`: the layout pretended; empty:
/// one node.
std::shared_ptr<Communicator> make_ghost(
    int rank, int ranks, std::vector<int> node_of = {});

} // namespace laga
