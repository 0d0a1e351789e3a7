// The backend that the common tests run on: every test program links one of
// the backend_*.cpp.
#pragma once

#include <map>

#include "tests/comm/support.h"

namespace laga::test {

struct RunOptions {
  int ranks = 1;
  std::vector<int> node_of = {};
  double deadline_s = 60;
};

/// How many ranks this program can run: some numbers of threads, or the one
/// number of processes that were started.
std::vector<int> rank_counts();

/// Runs the body once a rank, in this process for the ranks that live here, in
/// a world of its own.
void on_ranks(
    const RunOptions& options, const std::function<void(const Comm&)>& body);

/// By rank, for those that live here: what its CommError said.
using Errors = std::map<int, std::string>;
Errors errors_on_ranks(
    const RunOptions& options, const std::function<void(const Comm&)>& body);

/// Every rank that lives here raised something that contains `part`.
inline testing::AssertionResult all_contain(
    const Errors& errors, const std::string& part) {
  for (const auto& [rank, error] : errors) {
    const auto found = contains(error, part);
    if (found) continue;
    return testing::AssertionFailure()
           << "rank " << rank << ": " << found.message();
  }
  return testing::AssertionSuccess();
}

} // namespace laga::test
