#include "laga/comm/threads/threads.h"

#include <mutex>

#include "tests/comm/backend.h"

namespace laga::test {

std::vector<int> rank_counts() {
  return {1, 2, 3, 4, 7, 8};
}

void on_ranks(
    const RunOptions& options, const std::function<void(const Comm&)>& body) {
  run_ranks({options.ranks, options.deadline_s, options.node_of}, body);
}

Errors errors_on_ranks(
    const RunOptions& options, const std::function<void(const Comm&)>& body) {
  Errors errors;
  std::mutex mutex;
  on_ranks(options, [&](const Comm& comm) {
    std::string error;
    try {
      body(comm);
    } catch (const CommError& raised) {
      error = raised.what();
    }
    const std::lock_guard lock(mutex);
    errors[comm->rank()] = error;
  });
  return errors;
}

} // namespace laga::test
