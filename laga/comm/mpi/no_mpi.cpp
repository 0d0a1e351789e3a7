// In place of the backend in a build without MPI.
#include "laga/comm/mpi/mpi.h"
#include "laga/core/check.h"

#include <cstdlib>

namespace laga {

bool launched_by_mpi() {
  return false;
}

int launched_rank() {
  return 0;
}

bool built_with_mpi() {
  return false;
}

std::shared_ptr<Communicator> mpi_world(const MpiOptions& /*options*/) {
  throw InvalidArgument(
      "[mpi_world] this build has no MPI. Install Open MPI (Debian: "
      "libopenmpi-dev, openmpi-bin) and build with -DLAGA_MPI=ON, or run the "
      "ranks as threads of one process");
}

void mpi_finalize() {}

void mpi_abort(int exit_code) {
  std::exit(exit_code);
}

} // namespace laga
