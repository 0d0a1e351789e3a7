// Arguments that no backend can use are refused before anything is sent.
#include <gtest/gtest.h>

#include "tests/comm/support.h"

namespace laga::test {
namespace {

// A call's arguments, all of them right; the tests below break one each.
struct Call {
  Buffer send = Buffer(40), recv = Buffer(40);
  std::vector<Part> to{{0, 20}, {20, 20}};
  std::vector<Part> from{{0, 20}, {20, 20}};
};

TEST(Arguments, AreRefusedBeforeAnythingIsSent) {
  const auto comms = make_thread_group({.ranks = 2});
  const auto message = [&](const Call& a, ConstBytes send, Bytes recv) {
    try {
      (void)comms[0]->all_to_all(forward("q"), send, a.to, recv, a.from);
    } catch (const InvalidArgument& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  const auto broken = [&](const auto& break_it) {
    Call a;
    break_it(a);
    return message(a, a.send, a.recv);
  };
  const std::string call = ". Rank 0 of world, forward/q all_to_all";
  EXPECT_EQ(
      broken([](Call& a) { a.to.pop_back(); }),
      "[all_to_all] to.size() == size() (1 vs 2)" + call);
  EXPECT_EQ(
      broken([](Call& a) {
        a.from.push_back({0, 0});
      }),
      "[all_to_all] from.size() == size() (3 vs 2)" + call);
  EXPECT_EQ(
      broken([](Call& a) { a.to[1].offset = 21; }),
      "[all_to_all] to[1] inside the buffer (offset 21, 20 bytes vs 40 bytes)" +
          call);
  for (const Part& bad :
       {Part{-1, 8}, Part{0, -1}, Part{0, 41}, Part{INT64_MAX, INT64_MAX}}) {
    EXPECT_TRUE(contains(
        broken([&](Call& a) { a.from[1] = bad; }),
        "[all_to_all] from[1] inside the buffer"));
  }
  EXPECT_EQ(
      broken([](Call& a) { a.to[0].bytes = 19; }),
      "[all_to_all] own part: bytes sent == bytes received (19 vs 20)" + call);
  EXPECT_EQ(
      broken([](Call& a) { a.from[1].offset = 19; }),
      "[all_to_all] from[0] and from[1] apart" + call);

  Call a;
  EXPECT_EQ(
      message(a, a.recv, a.recv),
      "[all_to_all] from[1] apart from what is sent" + call);
  EXPECT_THROW((void)comms[0]->split(-1, "sp"), InvalidArgument);
}

TEST(Arguments, OfAGatherAreRefusedBeforeAnythingIsSent) {
  const auto comms = make_thread_group({.ranks = 2});
  Buffer all(40);
  const Bytes bytes(all);
  const std::vector<Part> from{{0, 20}, {20, 20}};
  const auto message = [&](ConstBytes shard, std::span<const Part> parts) {
    try {
      (void)comms[1]->all_gather(forward("latent"), shard, bytes, parts);
    } catch (const InvalidArgument& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  const std::string call = ". Rank 1 of world, forward/latent all_gather";
  const Buffer apart(20);
  EXPECT_EQ(
      message(ConstBytes(apart).first(19), from),
      "[all_gather] own part: bytes sent == bytes received (19 vs 20)" + call);
  EXPECT_EQ(
      message(apart, std::span(from).first(1)),
      "[all_gather] from.size() == size() (1 vs 2)" + call);
  // In another rank's place, and beside its own.
  EXPECT_EQ(
      message(bytes.first(20), from),
      "[all_gather] from[0] apart from what is sent" + call);
  EXPECT_EQ(
      message(
          bytes.subspan(20, 20).first(20), std::vector<Part>{{0, 1}, {19, 20}}),
      "[all_gather] from[1] apart from what is sent" + call);
}

// What was refused left no trace: the next call is the first.
TEST(Arguments, RefusalDoesNotCountAsACall) {
  const auto errors = errors_by_rank({.ranks = 2}, [](const Comm& comm) {
    if (comm->rank() == 0) {
      EXPECT_THROW((void)comm->split(-1, "sp"), InvalidArgument);
    }
    gather_and_wait(comm, "latent");
  });
  EXPECT_EQ(errors, std::vector<std::string>(2));
}

} // namespace
} // namespace laga::test
