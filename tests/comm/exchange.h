// One all-to-all of one rank that checks itself.
#pragma once

#include "tests/comm/support.h"

namespace laga::test {

/// What a rank sends, where it goes, and what must arrive.
struct Exchange {
  Layout to, from;
  Buffer send, recv;
  std::unique_ptr<Work> work;

  template <typename BytesBetween>
  Exchange(
      const Comm& comm,
      const std::string& name,
      const BytesBetween& bytes_between) {
    const int me = comm->rank();
    to = lay_out(
        comm->size(), true, [&](int p) { return bytes_between(me, p); });
    from = lay_out(
        comm->size(), false, [&](int p) { return bytes_between(p, me); });
    send.resize(static_cast<size_t>(to.bytes));
    recv.assign(static_cast<size_t>(from.bytes), kUntouched);
    for (int p = 0; p < comm->size(); ++p) {
      fill(send, to.parts[static_cast<size_t>(p)], me, p);
    }
    work = comm->all_to_all(forward(name), send, to.parts, recv, from.parts);
  }

  void wait_and_check(int me) {
    work->wait();
    const std::vector<int64_t> sent = work->bytes_sent();
    ASSERT_EQ(sent.size(), to.parts.size());
    for (size_t p = 0; p < sent.size(); ++p) {
      const int peer = static_cast<int>(p);
      EXPECT_EQ(first_wrong(recv, from.parts[p], peer, me), -1)
          << "from " << p << " to " << me;
      EXPECT_EQ(sent[p], peer == me ? 0 : to.parts[p].bytes)
          << "from " << me << " to " << p;
    }
    EXPECT_EQ(touched_gaps(recv, from.parts), 0);
  }
};

} // namespace laga::test
