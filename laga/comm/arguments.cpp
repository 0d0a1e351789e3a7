#include "laga/comm/arguments.h"

#include "laga/core/check.h"

#include <functional>

namespace laga {

namespace {

// The call that is being checked, for messages.
struct Call {
  const char* op;
  const Communicator& comm;
  const Label& label;

  [[noreturn]] void fail(const std::string& condition) const {
    detail::throw_invalid(
        op,
        condition,
        detail::concat(
            "Rank ",
            comm.rank(),
            " of ",
            comm.name(),
            ", ",
            describe(label, op)));
  }
};

void check_inside(
    const Call& call,
    const char* side,
    std::span<const Part> parts,
    size_t buffer_bytes) {
  const auto size = static_cast<int64_t>(buffer_bytes);
  if (parts.size() != static_cast<size_t>(call.comm.size())) {
    call.fail(detail::concat(
        side,
        ".size() == size() (",
        parts.size(),
        " vs ",
        call.comm.size(),
        ")"));
  }
  for (size_t p = 0; p < parts.size(); ++p) {
    const auto& [offset, bytes] = parts[p];
    // Written so that no sum can overflow.
    if (offset < 0 || bytes < 0 || bytes > size || offset > size - bytes) {
      call.fail(detail::concat(
          side,
          "[",
          p,
          "] inside the buffer (offset ",
          offset,
          ", ",
          bytes,
          " bytes vs ",
          size,
          " bytes)"));
    }
  }
}

void check_own_part(const Call& call, int64_t sent, int64_t received) {
  if (sent != received) {
    call.fail(detail::concat(
        "own part: bytes sent == bytes received (",
        sent,
        " vs ",
        received,
        ")"));
  }
}

ConstBytes part_of(ConstBytes buffer, const Part& part) {
  return buffer.subspan(
      static_cast<size_t>(part.offset), static_cast<size_t>(part.bytes));
}

void check_apart(
    const Call& call, ConstBytes recv, std::span<const Part> from) {
  for (size_t p = 0; p < from.size(); ++p) {
    for (size_t q = p + 1; q < from.size(); ++q) {
      if (overlap(part_of(recv, from[p]), part_of(recv, from[q]))) {
        call.fail(detail::concat("from[", p, "] and from[", q, "] apart"));
      }
    }
  }
}

// Peers read `sent` for as long as the call is under way. `in_place`: the own
// part is where it will be anyway, so nothing is written there.
void check_nothing_arrives_in(
    const Call& call,
    ConstBytes sent,
    Bytes recv,
    std::span<const Part> from,
    bool in_place) {
  for (size_t q = 0; q < from.size(); ++q) {
    if (in_place && q == static_cast<size_t>(call.comm.rank())) continue;
    if (overlap(sent, part_of(recv, from[q]))) {
      call.fail(detail::concat("from[", q, "] apart from what is sent"));
    }
  }
}

} // namespace

void check_all_to_all(
    const Communicator& comm,
    const Label& label,
    ConstBytes send,
    std::span<const Part> to,
    Bytes recv,
    std::span<const Part> from) {
  const Call call{"all_to_all", comm, label};
  check_inside(call, "to", to, send.size());
  check_inside(call, "from", from, recv.size());
  const auto self = static_cast<size_t>(comm.rank());
  check_own_part(call, to[self].bytes, from[self].bytes);
  check_apart(call, recv, from);
  if (!overlap(send, recv)) return;
  const bool in_place =
      send.data() + to[self].offset == recv.data() + from[self].offset;
  for (const Part& part : to) {
    check_nothing_arrives_in(call, part_of(send, part), recv, from, in_place);
  }
}

void check_all_gather(
    const Communicator& comm,
    const Label& label,
    ConstBytes shard,
    Bytes all,
    std::span<const Part> from) {
  const Call call{"all_gather", comm, label};
  check_inside(call, "from", from, all.size());
  const Part& own = from[static_cast<size_t>(comm.rank())];
  check_own_part(call, static_cast<int64_t>(shard.size()), own.bytes);
  check_apart(call, all, from);
  check_nothing_arrives_in(
      call, shard, all, from, shard.data() == all.data() + own.offset);
}

bool overlap(ConstBytes a, ConstBytes b) {
  if (a.empty() || b.empty()) return false;
  // Of unrelated buffers only std::less gives a defined order.
  const std::less<const std::byte*> before;
  return before(a.data(), b.data() + b.size()) &&
         before(b.data(), a.data() + a.size());
}

std::string describe(const Label& label, std::string_view op) {
  return detail::concat(name_of(label.phase), "/", label.name, " ", op);
}

} // namespace laga
