// Reduce-scatter and all-reduce on any backend: bits, bytes, chunks and shares.
#include "laga/comm/reduce.h"

#include <gtest/gtest.h>

#include "tests/comm/backend.h"
#include "tests/comm/numbers.h"

namespace laga::test {
namespace {

TEST(ShareOf, SharesFollowEachOtherAndDifferByOneAtMost) {
  for (const int ranks : {1, 2, 3, 7, 8}) {
    for (const int64_t count : {0, 1, 5, 8, 1000, 1001}) {
      int64_t begin = 0;
      for (int r = 0; r < ranks; ++r) {
        const Share share = share_of(count, ranks, r);
        EXPECT_EQ(share.begin, begin);
        EXPECT_EQ(share.count, count / ranks + (r < count % ranks ? 1 : 0));
        begin += share.count;
      }
      EXPECT_EQ(begin, count);
    }
  }
}

TEST(ShareOf, RefusesImpossibleArguments) {
  EXPECT_THROW(share_of(-1, 2, 0), InvalidArgument);
  EXPECT_THROW(share_of(4, 0, 0), InvalidArgument);
  EXPECT_THROW(share_of(4, 2, 2), InvalidArgument);
  EXPECT_THROW(share_of(4, 2, -1), InvalidArgument);
}

struct Case {
  std::vector<int> nodes; // by rank
  int64_t count;
};

// Everybody's numbers, and what must come out.
template <typename Number>
struct Sums {
  std::vector<std::vector<Number>> values; // by rank
  std::vector<Number> expected;

  explicit Sums(const Case& c) {
    for (size_t r = 0; r < c.nodes.size(); ++r) {
      values.push_back(random_numbers<Number>(c.count, static_cast<int>(r)));
    }
    expected = plain_sum(values, c.nodes);
  }
};

RunOptions options(const Case& c) {
  return {.ranks = static_cast<int>(c.nodes.size()), .node_of = c.nodes};
}

bool can_run(const Case& c) {
  const auto counts = rank_counts();
  const auto ranks = static_cast<int>(c.nodes.size());
  return std::count(counts.begin(), counts.end(), ranks) != 0;
}

template <typename Number>
ConstBytes bytes(const std::vector<Number>& numbers) {
  return std::as_bytes(std::span(numbers));
}
template <typename Number>
Bytes writable_bytes(std::vector<Number>& numbers) {
  return std::as_writable_bytes(std::span(numbers));
}
template <typename Number>
std::vector<Number> part(const std::vector<Number>& all, const Share& share) {
  return {all.begin() + share.begin, all.begin() + share.begin + share.count};
}

// The scratch in numbers for each peer: one, some, and all at once.
const std::vector<int64_t> kScratchNumbers{1, 150, 2000};

template <typename Number>
class Reduce : public testing::Test {
 protected:
  static std::vector<Case> cases() {
    std::vector<Case> all;
    for (const int ranks : rank_counts()) {
      for (const int64_t count : {0, 1, 5, 1001}) {
        all.push_back({std::vector<int>(static_cast<size_t>(ranks)), count});
      }
    }
    for (const int64_t count : {1, 1001, 5003}) {
      all.push_back({{0, 0, 1, 1}, count});
      all.push_back({{0, 1, 0, 2, 1, 2, 0}, count});
    }
    std::erase_if(all, [](const Case& c) { return !can_run(c); });
    return all;
  }
};
using Numbers = testing::Types<Bf16, float, double>;
TYPED_TEST_SUITE(Reduce, Numbers);

// `in_place`: out is the own part of send.
template <typename Number>
void check_reduce_scatter(
    const Comm& comm,
    const Sums<Number>& sums,
    int64_t scratch_numbers,
    bool in_place) {
  const int me = comm->rank();
  const int size = comm->size();
  std::vector<Number> send = sums.values[static_cast<size_t>(me)];
  const std::vector<Number> before = send;
  const auto count = static_cast<int64_t>(send.size());
  const Share own = share_of(count, size, me);
  std::vector<Number> apart(static_cast<size_t>(own.count));
  std::vector<Number> scratch(
      static_cast<size_t>(scratch_numbers * (size - 1)));
  const Bytes own_part = writable_bytes(send).subspan(
      static_cast<size_t>(own.begin) * sizeof(Number),
      apart.size() * sizeof(Number));

  ReduceScatter reduce(
      comm,
      {Phase::kBackward, "latent"},
      dtype_of<Number>(),
      bytes(send),
      in_place ? own_part : writable_bytes(apart),
      writable_bytes(scratch));
  reduce.wait();
  reduce.wait(); // a second time: nothing happens
  expect_same_bits(
      in_place ? part(send, own) : apart, part(sums.expected, own));

  // Nothing else of send changed.
  for (int p = 0; p < size; ++p) {
    if (in_place && p == me) continue;
    const Share share = share_of(count, size, p);
    expect_same_bits(part(send, share), part(before, share));
  }
  const std::vector<int64_t> sent = reduce.bytes_sent();
  ASSERT_EQ(sent.size(), static_cast<size_t>(size));
  for (int p = 0; p < size; ++p) {
    const int64_t numbers = p == me ? 0 : share_of(count, size, p).count;
    EXPECT_EQ(
        sent[static_cast<size_t>(p)], numbers * size_of(dtype_of<Number>()));
  }
}

TYPED_TEST(Reduce, ScatterHasTheBitsOfAPlainLoopInChunksOfAnySize) {
  for (const Case& c : this->cases()) {
    const Sums<TypeParam> sums(c);
    on_ranks(options(c), [&](const Comm& comm) {
      for (const int64_t scratch : kScratchNumbers) {
        if (scratch == 1 && c.count > 100) continue; // hundreds of chunks
        check_reduce_scatter(comm, sums, scratch, false);
        check_reduce_scatter(comm, sums, scratch, true);
      }
    });
  }
}

TYPED_TEST(Reduce, AllReduceHasTheBitsOfAPlainLoopOnEveryRank) {
  for (const Case& c : this->cases()) {
    const Sums<TypeParam> sums(c);
    const auto size = static_cast<int64_t>(c.nodes.size());
    on_ranks(options(c), [&](const Comm& comm) {
      const int me = comm->rank();
      for (const int64_t scratch_numbers : kScratchNumbers) {
        if (scratch_numbers == 1 && c.count > 100) continue;
        std::vector<TypeParam> buffer = sums.values[static_cast<size_t>(me)];
        std::vector<TypeParam> scratch(
            static_cast<size_t>(scratch_numbers * (size - 1)));
        const std::vector<int64_t> sent = all_reduce(
            comm,
            {Phase::kWeightGradients, "o_proj.weight"},
            dtype_of<TypeParam>(),
            writable_bytes(buffer),
            writable_bytes(scratch));
        expect_same_bits(buffer, sums.expected);

        const int64_t own = share_of(c.count, comm->size(), me).count;
        for (int p = 0; p < comm->size(); ++p) {
          const int64_t numbers =
              p == me ? 0 : share_of(c.count, comm->size(), p).count + own;
          EXPECT_EQ(
              sent[static_cast<size_t>(p)],
              numbers * size_of(dtype_of<TypeParam>()));
        }
      }
    });
  }
}

TEST(ReduceScatter, RunsBesideAGather) {
  const Case c{{0, 0, 1}, 1001};
  if (!can_run(c)) GTEST_SKIP() << "with this number of ranks";
  const Sums<Bf16> sums(c);
  on_ranks(options(c), [&](const Comm& comm) {
    const auto me = static_cast<size_t>(comm->rank());
    const Share own = share_of(c.count, 3, comm->rank());
    std::vector<Bf16> out(static_cast<size_t>(own.count)), scratch(2000);
    ReduceScatter reduce(
        comm,
        forward("d_latent"),
        Dtype::kBf16,
        bytes(sums.values[me]),
        writable_bytes(out),
        writable_bytes(scratch));
    gather_and_wait(comm, "latent");
    reduce.wait();
    expect_same_bits(out, part(sums.expected, own));
  });
}

// A device brings its own sum; it gets the parts in rank order.
TEST(ReduceScatter, UsesTheGivenSum) {
  const Case c{{0, 1}, 4};
  if (!can_run(c)) GTEST_SKIP() << "with this number of ranks";
  const SumFunction last_part = [](Dtype dtype,
                                   std::span<const std::byte* const> parts,
                                   std::span<const int> nodes,
                                   std::byte* out,
                                   int64_t count) {
    EXPECT_EQ(nodes.size(), 2u);
    EXPECT_EQ(nodes[1], 1);
    const auto size = static_cast<size_t>(count * size_of(dtype));
    std::memcpy(out, parts.back(), size);
  };
  on_ranks(options(c), [&](const Comm& comm) {
    const float mine = comm->rank() == 0 ? 10.0f : 20.0f;
    std::vector<float> buffer(4, mine), scratch(2);
    all_reduce(
        comm,
        forward("loss"),
        Dtype::kFp32,
        writable_bytes(buffer),
        writable_bytes(scratch),
        last_part);
    EXPECT_EQ(buffer, std::vector<float>(4, 20.0f));
  });
}

// With another scratch a rank would make another number of calls.
TEST(ReduceScatter, AnotherScratchRaisesEverywhere) {
  const Case c{{0, 0, 0}, 30};
  if (!can_run(c)) GTEST_SKIP() << "with this number of ranks";
  const auto errors = errors_on_ranks(options(c), [](const Comm& comm) {
    std::vector<float> buffer(30), scratch(comm->rank() == 1 ? 6 : 8);
    all_reduce(
        comm,
        forward("loss"),
        Dtype::kFp32,
        writable_bytes(buffer),
        writable_bytes(scratch));
  });
  EXPECT_TRUE(all_contain(
      errors,
      "rank 0 calls forward/loss chunk 1 of 3 all_to_all (#1), rank 1 calls "
      "forward/loss chunk 1 of 4 all_to_all (#1) of world"));
}

// So that no number of one call is added to another's.
TEST(ReduceScatter, ForgottenWaitRaisesEverywhere) {
  const Case c{{0, 0}, 8};
  if (!can_run(c)) GTEST_SKIP() << "with this number of ranks";
  const auto errors = errors_on_ranks(options(c), [](const Comm& comm) {
    for (int repeat = 0; repeat < 2; ++repeat) {
      const std::vector<float> send(8);
      std::vector<float> out(4), scratch(2);
      ReduceScatter reduce(
          comm,
          forward("d_latent"),
          Dtype::kFp32,
          bytes(send),
          writable_bytes(out),
          writable_bytes(scratch));
      if (comm->rank() == 0) reduce.wait();
    }
    comm->barrier(forward("end"));
  });
  EXPECT_TRUE(all_contain(
      errors,
      "rank 0 calls forward/d_latent chunk 2 of 2 all_to_all (#2), rank 1 "
      "calls forward/d_latent chunk 1 of 2 all_to_all (#2) of world"));
}

// Equal layouts give equal bits on every backend: those of threads.
TYPED_TEST(Reduce, HasTheBitsThatThreadsHave) {
  for (const Case& c : this->cases()) {
    const auto all_reduced = [&](const Comm& comm) {
      std::vector<TypeParam> buffer =
          random_numbers<TypeParam>(c.count, comm->rank());
      std::vector<TypeParam> scratch(300 * c.nodes.size());
      all_reduce(
          comm,
          forward("loss"),
          dtype_of<TypeParam>(),
          writable_bytes(buffer),
          writable_bytes(scratch));
      return buffer;
    };
    std::vector<TypeParam> by_threads;
    run_ranks(
        {static_cast<int>(c.nodes.size()), 60, c.nodes}, [&](const Comm& comm) {
          auto sums = all_reduced(comm);
          if (comm->rank() == 0) by_threads = std::move(sums);
        });
    on_ranks(options(c), [&](const Comm& comm) {
      expect_same_bits(all_reduced(comm), by_threads);
    });
  }
}

TEST(ReduceScatter, RefusesImpossibleBuffers) {
  const auto comm = make_thread_group({.ranks = 2}).front();
  std::vector<float> send(5), out(3), scratch(1);
  const auto refusal = [&](ConstBytes sent, Bytes to, Bytes spare) {
    try {
      ReduceScatter(comm, forward("loss"), Dtype::kFp32, sent, to, spare);
    } catch (const InvalidArgument& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  const ConstBytes s = bytes(send);
  const Bytes o = writable_bytes(out), spare = writable_bytes(scratch);
  EXPECT_TRUE(contains(refusal(s.first(19), o, spare), "(3 vs 0)"));
  EXPECT_TRUE(contains(refusal(s, o.first(8), spare), "(8 vs 12)"));
  EXPECT_TRUE(contains(refusal(s, o, spare.first(3)), "has 3 bytes"));
  const Bytes in_send = writable_bytes(send);
  EXPECT_TRUE(contains(
      refusal(s, in_send.subspan(4, 12), spare), "out must be the own part"));
  EXPECT_TRUE(contains(
      refusal(s, o, in_send.last(4)), "scratch must be apart from send"));
  EXPECT_TRUE(contains(
      refusal(s, o, o.last(4)), "scratch must be apart from send and out"));
}

} // namespace
} // namespace laga::test
