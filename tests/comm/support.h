// Data that shows where it comes from, and what each rank of a run raised.
#pragma once

#include "laga/comm/communicator.h"
#include "laga/comm/threads/threads.h"
#include "laga/core/check.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace laga::test {

using Buffer = std::vector<std::byte>;
using Comm = std::shared_ptr<Communicator>;

inline constexpr std::byte kUntouched{0xEE};

/// Byte i of what `source` sends to `destination`: at equal i it differs for
/// any two pairs of ranks below 16, so that a misrouted block shows.
inline std::byte pattern(int source, int destination, int64_t i) {
  const auto mixed = static_cast<uint32_t>(i) * 2654435761u >> 24;
  return static_cast<std::byte>(
      static_cast<uint32_t>(source * 16 + destination) ^ mixed);
}

inline void fill(Buffer& buffer, const Part& part, int source, int to) {
  for (int64_t i = 0; i < part.bytes; ++i) {
    buffer[static_cast<size_t>(part.offset + i)] = pattern(source, to, i);
  }
}

/// Index of the first byte of `part` that is not what `source` sends; -1: none.
inline int64_t first_wrong(
    const Buffer& buffer, const Part& part, int source, int to) {
  for (int64_t i = 0; i < part.bytes; ++i) {
    if (buffer[static_cast<size_t>(part.offset + i)] !=
        pattern(source, to, i)) {
      return i;
    }
  }
  return -1;
}

/// Parts one after the other, in rank order or backwards, with a gap of three
/// bytes after each that nobody may touch.
struct Layout {
  std::vector<Part> parts;
  int64_t bytes = 0; // of the whole buffer
};

template <typename BytesOfPeer>
Layout lay_out(int ranks, bool backwards, const BytesOfPeer& bytes_of_peer) {
  constexpr int64_t kGap = 3;
  Layout layout;
  layout.parts.resize(static_cast<size_t>(ranks));
  for (int i = 0; i < ranks; ++i) {
    const int peer = backwards ? ranks - 1 - i : i;
    const int64_t bytes = bytes_of_peer(peer);
    layout.parts[static_cast<size_t>(peer)] = {layout.bytes, bytes};
    layout.bytes += bytes + kGap;
  }
  return layout;
}

/// Bytes of `buffer` outside of all parts that were written to.
inline int64_t touched_gaps(Buffer buffer, const std::vector<Part>& parts) {
  for (const Part& part : parts) {
    for (int64_t i = 0; i < part.bytes; ++i) {
      buffer[static_cast<size_t>(part.offset + i)] = kUntouched;
    }
  }
  int64_t touched = 0;
  for (const std::byte b : buffer)
    touched += b != kUntouched;
  return touched;
}

inline Label forward(std::string name) {
  return {Phase::kForward, std::move(name)};
}

/// What each rank's CommError said; "" where it raised none.
template <typename Body>
std::vector<std::string> errors_by_rank(
    const ThreadGroupOptions& options, const Body& body) {
  std::vector<std::string> errors(static_cast<size_t>(options.ranks));
  run_ranks(options, [&](const Comm& comm) {
    const auto rank = static_cast<size_t>(comm->rank());
    try {
      body(comm);
    } catch (const CommError& error) {
      errors[rank] = error.what();
    }
  });
  return errors;
}

inline testing::AssertionResult contains(
    const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) return testing::AssertionSuccess();
  return testing::AssertionFailure()
         << "'" << part << "' is not in '" << text << "'";
}

/// Every rank but `except` raised something that contains `part`.
inline testing::AssertionResult all_contain(
    const std::vector<std::string>& errors,
    const std::string& part,
    int except = -1) {
  for (size_t r = 0; r < errors.size(); ++r) {
    if (static_cast<int>(r) == except) continue;
    const auto found = contains(errors[r], part);
    if (found) continue;
    return testing::AssertionFailure()
           << "rank " << r << ": " << found.message();
  }
  return testing::AssertionSuccess();
}

/// A gather of `bytes` a rank that is started and waited for at once.
inline void gather_and_wait(
    const Comm& comm, const std::string& name, int64_t bytes = 8) {
  const auto size = static_cast<size_t>(bytes);
  const Buffer shard(size, std::byte{1});
  const auto ranks = static_cast<size_t>(comm->size());
  Buffer all(ranks * size);
  std::vector<Part> from;
  for (size_t p = 0; p < ranks; ++p) {
    from.push_back({static_cast<int64_t>(p * size), bytes});
  }
  comm->all_gather(forward(name), shard, all, from)->wait();
}

} // namespace laga::test
