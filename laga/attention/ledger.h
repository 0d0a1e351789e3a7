// What a rank sent and how long it waited, written down by the collectives.
#pragma once

#include "laga/comm/communicator.h"
#include "laga/core/transfer.h"

#include <array>
#include <chrono>
#include <span>
#include <string>
#include <vector>

namespace laga {

/// Used by the rank's own thread only.
struct Ledger {
  std::vector<Transfer> transfers; // in the order in which they ended
  /// Seconds inside waits by phase, copying and summing included.
  std::array<double, 3> seconds_waiting{};

  /// Runs `wait`, which returns the bytes sent per peer, and writes both down.
  /// The payload, a gathered shard counted once, is the sum over peers unless
  /// it is given.
  template <typename Wait>
  void record(
      const Communicator& comm,
      const Label& label,
      std::string op,
      const Wait& wait,
      int64_t payload_bytes = -1) {
    const auto begin = std::chrono::steady_clock::now();
    const std::vector<int64_t> sent = wait();
    const std::chrono::duration<double> seconds =
        std::chrono::steady_clock::now() - begin;
    seconds_waiting[static_cast<size_t>(label.phase)] += seconds.count();
    write_down(comm, label, std::move(op), sent, payload_bytes);
  }

 private:
  void write_down(
      const Communicator& comm,
      const Label& label,
      std::string op,
      std::span<const int64_t> sent,
      int64_t payload_bytes);
};

} // namespace laga
