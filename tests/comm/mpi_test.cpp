// What only MPI has: pieces of large transfers, bytes that a second counter
// sees, worlds one after the other, transfers that go on by themselves.
#include "laga/comm/mpi/mpi.h"

#include "laga/comm/reduce.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <numeric>
#include <thread>

#include "tests/comm/counting.h"
#include "tests/comm/exchange.h"

namespace laga::test {
namespace {

int64_t uneven(int source, int destination) {
  return 1001 * ((source * 3 + destination * 5) % 7) / 3;
}

TEST(MpiWorld, KnowsThatItWasLaunched) {
  EXPECT_TRUE(launched_by_mpi());
}

TEST(MpiWorld, RefusesImpossibleOptions) {
  EXPECT_THROW((void)mpi_world({.deadline_s = 0}), InvalidArgument);
  EXPECT_THROW((void)mpi_world({.largest_message_bytes = 0}), InvalidArgument);
  EXPECT_THROW(
      (void)mpi_world({.largest_message_bytes = int64_t{1} << 31}),
      InvalidArgument);
  EXPECT_THROW(
      (void)mpi_world({.node_of = std::vector<int>(100)}), InvalidArgument);
}

// Ranks are on one node where they see one host name.
TEST(MpiWorld, NodesAreTheHosts) {
  const Comm comm = mpi_world({.deadline_s = 60});
  constexpr size_t kLongest = 256;
  std::vector<char> own(kLongest);
  ASSERT_EQ(gethostname(own.data(), kLongest - 1), 0);
  std::vector<char> all(kLongest * static_cast<size_t>(comm->size()));
  std::vector<Part> from;
  for (int64_t p = 0; p < comm->size(); ++p) {
    from.push_back({p * int64_t{kLongest}, kLongest});
  }
  comm->all_gather(
          forward("host"),
          std::as_bytes(std::span(own)),
          std::as_writable_bytes(std::span(all)),
          from)
      ->wait();
  std::vector<std::string> hosts; // in the order of their first rank
  for (int r = 0; r < comm->size(); ++r) {
    const std::string host = &all[static_cast<size_t>(r) * kLongest];
    const auto found = std::find(hosts.begin(), hosts.end(), host);
    EXPECT_EQ(comm->node_of(r), found - hosts.begin()) << host;
    if (found == hosts.end()) hosts.push_back(host);
  }
  if (comm->rank() == 0) std::printf("%zu host(s)\n", hosts.size());
}

// Their messages must not mix, though labels, numbers and sizes are equal.
TEST(MpiWorld, WorldsBesideEachOtherKeepTheirDataApart) {
  const Comm a = mpi_world({.deadline_s = 60});
  const Comm b = mpi_world({.deadline_s = 60});
  const int me = a->rank();
  const auto more = [](int s, int d) { return uneven(s, d) + 1; };
  Exchange in_a(me % 2 == 0 ? a : b, "q", me % 2 == 0 ? uneven : +more);
  Exchange in_b(me % 2 == 0 ? b : a, "q", me % 2 == 0 ? +more : uneven);
  in_a.wait_and_check(me);
  in_b.wait_and_check(me);
}

TEST(MpiPieces, OfAnySizeGiveTheSameBytes) {
  for (const int64_t largest : {1, 7, 333, 1001}) {
    const Comm comm =
        mpi_world({.deadline_s = 60, .largest_message_bytes = largest});
    const int me = comm->rank();
    // Byte by byte, a little is enough.
    const auto bytes = [&](int s, int d) {
      return largest == 1 ? uneven(s, d) / 20 : uneven(s, d);
    };
    forget_largest_counted();
    Exchange first(comm, "first", bytes);
    Exchange second(comm, "second", bytes);
    second.wait_and_check(me);
    first.wait_and_check(me);
    EXPECT_LE(largest_counted(), largest);
  }
}

// By rank of the world, the sum of `sent` of a group whose rank r is the
// world's world_rank[r].
void add(
    std::vector<int64_t>& total,
    const std::vector<int64_t>& sent,
    const std::vector<int>& world_rank) {
  for (size_t r = 0; r < sent.size(); ++r) {
    total[static_cast<size_t>(world_rank[r])] += sent[r];
  }
}

TEST(MpiBytes, ASecondCounterAgrees) {
  const Comm comm = mpi_world({.deadline_s = 60, .largest_message_bytes = 999});
  const int me = comm->rank();
  const int size = comm->size();
  const Comm parity = comm->split(me % 2, "parity");
  std::vector<int> of_world(static_cast<size_t>(size));
  std::iota(of_world.begin(), of_world.end(), 0);
  std::vector<int> of_parity;
  for (int r = me % 2; r < size; r += 2)
    of_parity.push_back(r);

  comm->barrier(forward("start"));
  const std::vector<int64_t> before = counted_bytes(size);
  std::vector<int64_t> sent(static_cast<size_t>(size));
  Exchange in_world(comm, "q", uneven);
  Exchange in_parity(parity, "q", uneven);
  in_world.wait_and_check(me);
  in_parity.wait_and_check(parity->rank());
  add(sent, in_world.work->bytes_sent(), of_world);
  add(sent, in_parity.work->bytes_sent(), of_parity);
  std::vector<float> buffer(5003), scratch(700 * static_cast<size_t>(size));
  const Bytes bytes = std::as_writable_bytes(std::span(buffer));
  const Bytes spare = std::as_writable_bytes(std::span(scratch));
  add(sent,
      all_reduce(comm, forward("loss"), Dtype::kFp32, bytes, spare),
      of_world);

  std::vector<int64_t> counted = counted_bytes(size);
  for (size_t p = 0; p < counted.size(); ++p)
    counted[p] -= before[p];
  EXPECT_EQ(counted, sent);
  EXPECT_EQ(counted[static_cast<size_t>(me)], 0);
}

// A folder that rank 0 makes and all ranks know.
std::filesystem::path common_folder(const Comm& comm) {
  constexpr size_t kLongest = 200;
  std::string name(kLongest, '\0');
  if (comm->rank() == 0) {
    name = (std::filesystem::temp_directory_path() / "laga_XXXXXX").string();
    EXPECT_NE(mkdtemp(name.data()), nullptr);
    name.resize(kLongest);
  }
  std::vector<Part> to(static_cast<size_t>(comm->size()));
  std::vector<Part> from = to;
  if (comm->rank() == 0) to.assign(to.size(), {0, kLongest});
  from[0] = {0, kLongest};
  std::string received(kLongest, '\0');
  comm->all_to_all(
          forward("folder"),
          std::as_bytes(std::span(name)),
          to,
          std::as_writable_bytes(std::span(received)),
          from)
      ->wait();
  return received.c_str();
}

// Rank 0 computes and makes no call until the others have everything, which
// they tell it by files.
TEST(MpiProgress, GoesOnWhileARankComputes) {
  const Comm comm = mpi_world({.deadline_s = 20});
  const int me = comm->rank();
  const auto folder = common_folder(comm);
  constexpr int64_t kBytes = 3000000; // too many to be sent at once
  Exchange exchange(comm, "q", [&](int, int) { return kBytes; });
  if (me == 0) {
    const auto end =
        std::chrono::steady_clock::now() + std::chrono::seconds(20);
    for (int p = 1; p < comm->size(); ++p) {
      const auto file = folder / std::to_string(p);
      while (!std::filesystem::exists(file)) {
        ASSERT_LT(std::chrono::steady_clock::now(), end) << "rank " << p;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    }
    std::filesystem::remove_all(folder);
  }
  exchange.wait_and_check(me);
  if (me != 0) std::ofstream(folder / std::to_string(me)) << "done";
}

int64_t available_bytes() {
  std::ifstream file("/proc/meminfo");
  std::string word;
  int64_t kib = 0;
  while (file >> word) {
    if (word == "MemAvailable:" && file >> kib) return kib * 1024;
  }
  return 0;
}

// More than an int can count, from rank 0 to rank 1.
TEST(MpiLarge, OneTransferOfMoreThanTwoToThe31Bytes) {
  const Comm comm = mpi_world({.deadline_s = 100});
  if (comm->size() != 2) GTEST_SKIP() << "with two ranks only";
  constexpr int64_t kBytes = (int64_t{1} << 31) + 12345;
  // Each has its buffer, and something must remain for others. Rank 0 decides.
  int64_t enough = available_bytes() > 3 * kBytes ? 1 : 0;
  std::vector<int64_t> all(2);
  const std::vector<Part> from{{0, 8}, {8, 8}};
  comm->all_gather(
          forward("enough"),
          std::as_bytes(std::span(&enough, 1)),
          std::as_writable_bytes(std::span(all)),
          from)
      ->wait();
  if (all[0] == 0) {
    GTEST_SKIP() << available_bytes() << " bytes available, needs "
                 << 3 * kBytes;
  }
  const int me = comm->rank();
  // Not filled: touching 2 GiB takes longer than sending them.
  const auto storage = std::make_unique_for_overwrite<std::byte[]>(kBytes);
  const Bytes buffer(storage.get(), kBytes);
  const auto word = [](int64_t i) {
    return static_cast<std::byte>(i * 2654435761 >> 13);
  };
  // Some bytes of every MiB, and the last ones.
  constexpr int64_t kStride = (int64_t{1} << 20) - 1;
  if (me == 0) {
    for (int64_t i = 0; i < kBytes; i += kStride)
      buffer[static_cast<size_t>(i)] = word(i);
    buffer.back() = std::byte{77};
  }
  const std::vector<Part> nothing{{0, 0}, {0, 0}};
  const std::vector<Part> to{{0, 0}, {0, kBytes}},
      arriving{{0, kBytes}, {0, 0}};
  const auto work =
      me == 0
          ? comm->all_to_all(forward("large"), buffer, to, {}, nothing)
          : comm->all_to_all(forward("large"), {}, nothing, buffer, arriving);
  work->wait();
  if (me == 0) {
    EXPECT_EQ(work->bytes_sent()[1], kBytes);
    EXPECT_EQ(largest_counted(), int64_t{1} << 30);
    return;
  }
  for (int64_t i = 0; i < kBytes - 1; i += kStride) {
    ASSERT_EQ(buffer[static_cast<size_t>(i)], word(i)) << i;
  }
  EXPECT_EQ(buffer.back(), std::byte{77});
}

} // namespace
} // namespace laga::test
