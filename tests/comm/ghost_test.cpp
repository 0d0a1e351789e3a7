#include "laga/comm/ghost/ghost.h"

#include "laga/comm/reduce.h"
#include "laga/core/check.h"

#include <gtest/gtest.h>

#include <array>

namespace laga {
namespace {

TEST(Ghost, CountsWhatItWouldSendAndFillsWhatItWouldReceive) {
  const auto comm = make_ghost(1, 3, {0, 0, 1});
  EXPECT_EQ(comm->rank(), 1);
  EXPECT_EQ(comm->size(), 3);
  EXPECT_EQ(comm->node_of(2), 1);
  const std::array<int, 4> send{10, 11, 12, 13};
  std::array<int, 6> recv{};
  const std::vector<Part> to{{0, 4}, {4, 4}, {8, 8}};
  const std::vector<Part> from{{0, 8}, {8, 4}, {12, 12}};
  const auto work = comm->all_to_all(
      {Phase::kForward, "q"},
      std::as_bytes(std::span(send)),
      to,
      std::as_writable_bytes(std::span(recv)),
      from);
  work->wait();
  EXPECT_EQ(work->bytes_sent(), (std::vector<int64_t>{4, 0, 8}));
  EXPECT_EQ(recv, (std::array<int, 6>{10, 10, 11, 12, 13, 12}));
}

TEST(Ghost, GathersItsOwnShardEverywhereInPlace) {
  const auto comm = make_ghost(1, 3);
  std::array<int, 3> all{0, 7, 0};
  const std::vector<Part> from{{0, 4}, {4, 4}, {8, 4}};
  const auto work = comm->all_gather(
      {Phase::kForward, "latent"},
      std::as_bytes(std::span(all)).subspan(4, 4),
      std::as_writable_bytes(std::span(all)),
      from);
  work->wait();
  EXPECT_EQ(all, (std::array<int, 3>{7, 7, 7}));
  EXPECT_EQ(work->bytes_sent(), (std::vector<int64_t>{4, 0, 4}));
}

TEST(Ghost, ReducesLikeARealRank) {
  const auto comm = make_ghost(0, 4);
  std::vector<float> numbers(10, 2.0F);
  std::vector<std::byte> scratch(64);
  const auto sent = all_reduce(
      comm,
      {Phase::kWeightGradients, "w"},
      Dtype::kFp32,
      std::as_writable_bytes(std::span(numbers)),
      scratch);
  // Shares 3, 3, 2, 2: each peer gets its share to sum and the own sum back.
  EXPECT_EQ(sent, (std::vector<int64_t>{0, 24, 20, 20}));
  EXPECT_EQ(numbers[0], 8.0F);
}

TEST(Ghost, RefusesRanksThatAreNotThere) {
  EXPECT_THROW(make_ghost(4, 4), InvalidArgument);
  EXPECT_THROW(make_ghost(-1, 4), InvalidArgument);
  EXPECT_THROW(make_ghost(0, 0), InvalidArgument);
  EXPECT_THROW(make_ghost(0, 2, {0}), InvalidArgument);
}

} // namespace
} // namespace laga
