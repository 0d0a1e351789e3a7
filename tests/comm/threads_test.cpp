// What only threads have: communicators without a run.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/comm/support.h"

namespace laga::test {
namespace {

TEST(MakeThreadGroup, RanksAreInOrderOnOneNode) {
  const auto comms = make_thread_group({.ranks = 3});
  ASSERT_EQ(comms.size(), 3u);
  for (int r = 0; r < 3; ++r) {
    const Comm& comm = comms[static_cast<size_t>(r)];
    EXPECT_EQ(comm->rank(), r);
    EXPECT_EQ(comm->size(), 3);
    EXPECT_EQ(comm->name(), "world");
    EXPECT_EQ(comm->node_of(r), 0);
  }
}

TEST(MakeThreadGroup, RefusesImpossibleOptions) {
  const auto refused =
      [](int ranks, double deadline_s, std::vector<int> nodes) {
        try {
          (void)make_thread_group({ranks, deadline_s, std::move(nodes)});
        } catch (const InvalidArgument&) {
          return true;
        }
        return false;
      };
  EXPECT_FALSE(refused(2, 1, {1, 0}));
  EXPECT_TRUE(refused(0, 1, {}));
  EXPECT_TRUE(refused(2, 0, {}));
  EXPECT_TRUE(refused(2, std::nan(""), {}));
  EXPECT_TRUE(refused(2, 1, {0}));
  EXPECT_TRUE(refused(2, 1, {0, -1}));
  EXPECT_TRUE(refused(2, 1, {1, 1}));
  EXPECT_TRUE(refused(2, 1, {0, 2}));
}

} // namespace
} // namespace laga::test
