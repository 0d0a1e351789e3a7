// What ranks tell each other beside the data: which call they make, and that
// they give up.
#pragma once

#include "laga/comm/communicator.h"

namespace laga::mpi {

enum class Kind : int32_t { kCall, kAbort };

struct Message {
  Kind kind = Kind::kCall;
  int32_t world = 0; // the mpi_world() it belongs to, counted from 0
  std::string text;  // the name in the label; of an abort: its reason

  // Of a call.
  uint64_t group = 0; // the group's id
  int64_t number = 0; // of the call in its group
  Phase phase = Phase::kForward;
  std::string op;
  std::string group_name;
  uint64_t text_hash = 0; // of the whole text: it may have been cut off
  int32_t tag = 0;        // for what the receiver of this message sends back
  std::vector<int64_t> bytes_to;   // [p]: to the group's rank p
  std::vector<int64_t> bytes_from; // [p]: from it
};

/// Bytes of the largest message with sizes for so many ranks. So few that MPI
/// sends it at once, whether or not it is being received: Open MPI's limit is 4
/// KiB in a host, 64 KiB over TCP.
constexpr size_t largest_message(int ranks) {
  return 2048 + 2 * sizeof(int64_t) * static_cast<size_t>(ranks);
}

/// Texts that would not fit are cut off, with "..." at their end.
std::vector<std::byte> encode(const Message& message);
Message decode(ConstBytes bytes);

/// The same on every rank, unlike std::hash.
uint64_t hash_of(std::string_view text);
uint64_t hash_of(uint64_t a, uint64_t b);

/// Whether two ranks announce the same call, apart from its sizes.
bool same_call(const Message& a, const Message& b);

/// "forward/q all_to_all (#3)"
std::string describe(const Message& call);

} // namespace laga::mpi
