// What every backend checks before it sends anything, so that a backend only
// moves bytes.
#pragma once

#include "laga/comm/communicator.h"

namespace laga {

/// Throws InvalidArgument unless `to` and `from` have an entry per rank that
/// lies inside its buffer, the own parts have one size, no two parts of `recv`
/// overlap, and nothing arrives where a peer may still be reading. The own part
/// may be in place.
void check_all_to_all(
    const Communicator& comm,
    const Label& label,
    ConstBytes send,
    std::span<const Part> to,
    Bytes recv,
    std::span<const Part> from);

/// The same for a gather, where `shard` goes to everybody.
void check_all_gather(
    const Communicator& comm,
    const Label& label,
    ConstBytes shard,
    Bytes all,
    std::span<const Part> from);

/// Whether the two share a byte.
bool overlap(ConstBytes a, ConstBytes b);

/// "forward/q all_to_all": a call in messages.
std::string describe(const Label& label, std::string_view op);

} // namespace laga
