// Bytes and memory predicted from the config alone are those of a run.
#include "laga/measure/accounting.h"

#include <gtest/gtest.h>

#include <set>

namespace laga {
namespace {

// On processors with matrix instructions ATen's op repacks bf16 keys and values
// into buffers of its own, so small runs are left to `fused` and eager.
bool depends_on_processor(const AccountedRun& run) {
  return run.shape.dtype == Dtype::kBf16 &&
         run.inner.find("sdpa") != std::string::npos;
}

struct Counted {
  int configurations = 0;
  int transfers = 0;
  int large = 0; // peak over 64 MiB
};

Counted expect_all_explained(AccountingSweep sweep, bool to_the_byte) {
  Counted counted;
  for (const AccountingCase& a_case : accounting_cases(sweep)) {
    account(a_case, [&](const AccountedRun& run) {
      if (depends_on_processor(run)) return;
      ++counted.configurations;
      counted.transfers += run.transfers;
      counted.large += run.measured.peak > (int64_t{64} << 20) ? 1 : 0;
      for (const std::string& failure : run.failures) {
        ADD_FAILURE() << run.model << ' ' << run.form << ' ' << run.inner
                      << " P=" << run.shape.ranks
                      << (run.send_delta ? ", delta sent: " : ": ") << failure;
      }
      EXPECT_EQ(run.byte_difference, 0);
      if (to_the_byte) {
        EXPECT_EQ(run.unexplained_peak(), 0)
            << run.form << ' ' << run.inner << ' ' << name_of(run.shape.dtype)
            << " P=" << run.shape.ranks;
      }
    });
  }
  return counted;
}

TEST(Accounting, OddRunsAreExplainedToTheByte) {
  const Counted counted =
      expect_all_explained(AccountingSweep::kOdd, /*to_the_byte=*/true);
  EXPECT_GE(counted.configurations, 400);
  EXPECT_GE(counted.transfers, 10000);
}

TEST(Accounting, LargeRunsAreExplainedToAPerCent) {
  const Counted counted =
      expect_all_explained(AccountingSweep::kNarrow, /*to_the_byte=*/false);
  EXPECT_GE(counted.large, 40);
}

} // namespace
} // namespace laga
