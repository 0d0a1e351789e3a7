// Ranks as threads of one process: the embedded default.
#pragma once

#include "laga/comm/communicator.h"

#include <functional>

namespace laga {

struct ThreadGroupOptions {
  int ranks = 1;
  double deadline_s = 300;       // of one wait; then every rank raises
  std::vector<int> node_of = {}; // pretended layout; empty: one node
};

/// One communicator a rank, to be used by one thread each. A receiver copies
/// straight out of the sender's buffer: one copy a byte, counted there. It does
/// so inside wait(), for all its calls under way; so several may be waited for
/// in any order, and a sender waits for receivers that are still computing.
/// A rank leaves when its communicator is destroyed.
std::vector<std::shared_ptr<Communicator>> make_thread_group(
    const ThreadGroupOptions& options);

/// Runs body(communicator) on a thread per rank and waits for all of them. A
/// body that throws aborts the group, so that the others raise too; the first
/// exception that was not such a consequence is rethrown. A rank that is still
/// busy `deadline_s` after an abort is left behind and named in a CommError.
void run_ranks(
    const ThreadGroupOptions& options,
    const std::function<void(const std::shared_ptr<Communicator>&)>& body);

} // namespace laga
