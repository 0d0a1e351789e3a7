// Ranks as processes that an MPI launcher started. In a build without MPI the
// same functions throw InvalidArgument (no_mpi.cpp).
#pragma once

#include "laga/comm/communicator.h"

namespace laga {

/// The same on every rank.
struct MpiOptions {
  double deadline_s = 300; // of one wait; then every rank raises
  // Larger transfers go in pieces of this size: MPI counts bytes in an int.
  int64_t largest_message_bytes = int64_t{1} << 30;
  std::vector<int> node_of = {}; // pretended layout; empty: the real hosts
};

/// Whether a launcher started this process as one of several ranks; false in a
/// build without MPI. Reads the environment only: MPI is not started.
bool launched_by_mpi();

/// This process's rank as the launcher's environment says it, before MPI is
/// started; 0 without a launcher.
int launched_rank();

/// Whether this build has the backend.
bool built_with_mpi();

/// All ranks of the run as one group. Starts MPI at the first call, which is
/// collective; a later one gives a group of its own, which an abort of an
/// earlier one does not end.
///
/// Transfers go on while the rank computes: a thread looks after them. After a
/// CommError end the process with mpi_abort(). MPI cannot take back a transfer
/// that a dead peer left half done, so a call that fails with one under way
/// stops all MPI calls of this process: its buffers may then be freed, and
/// whatever is called later raises the same reason.
std::shared_ptr<Communicator> mpi_world(const MpiOptions& options = {});

/// The clean end, collective: waits, as a barrier of the last world, until all
/// ranks have come. Throws CommError where one does not, or calls something
/// else. Does nothing if MPI was not started.
void mpi_finalize();

/// The end after an error. Tells the peers, unless that was done; gives them a
/// second to raise and print what they have to say, or two where they told this
/// rank; then ends all of them. The launcher's exit status is the `exit_code`
/// of the first to do so, as a rule of the rank that failed first.
[[noreturn]] void mpi_abort(int exit_code);

} // namespace laga
