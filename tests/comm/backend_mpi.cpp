#include "laga/comm/mpi/mpi.h"

#include "tests/comm/backend.h"

namespace laga::test {

std::vector<int> rank_counts() {
  static const int size = mpi_world()->size();
  return {size};
}

void on_ranks(
    const RunOptions& options, const std::function<void(const Comm&)>& body) {
  const Comm comm =
      mpi_world({.deadline_s = options.deadline_s, .node_of = options.node_of});
  ASSERT_EQ(comm->size(), options.ranks);
  body(comm);
}

Errors errors_on_ranks(
    const RunOptions& options, const std::function<void(const Comm&)>& body) {
  Errors errors;
  on_ranks(options, [&](const Comm& comm) {
    std::string& error = errors[comm->rank()];
    try {
      body(comm);
    } catch (const CommError& raised) {
      error = raised.what();
    }
  });
  return errors;
}

} // namespace laga::test
