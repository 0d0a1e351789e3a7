// The main of a test program whose ranks mpirun starts: each runs all tests.
#include "laga/comm/mpi/mpi.h"
#include "laga/core/check.h"

#include <gtest/gtest.h>

#include <cstdio>

namespace {

// For all ranks but the first: only what went wrong.
class FailuresOnly : public testing::EmptyTestEventListener {
 public:
  explicit FailuresOnly(int rank) : rank_(rank) {}

  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (!result.failed()) return;
    std::fprintf(
        stderr,
        "rank %d: %s:%d: %s\n",
        rank_,
        result.file_name() == nullptr ? "?" : result.file_name(),
        result.line_number(),
        result.message());
  }

 private:
  const int rank_;
};

} // namespace

int main(int argc, char** argv) {
  const int rank = laga::mpi_world()->rank();
  testing::InitGoogleTest(&argc, argv);
  if (rank != 0) {
    auto& listeners = testing::UnitTest::GetInstance()->listeners();
    delete listeners.Release(listeners.default_result_printer());
    listeners.Append(new FailuresOnly(rank));
  }
  const int result = RUN_ALL_TESTS();
  try {
    (void)laga::mpi_world(); // one that no test has aborted
    laga::mpi_finalize();
  } catch (const laga::CommError& error) {
    std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
    laga::mpi_abort(1);
  }
  return result;
}
