// The order in which heads add to what they share, whichever worker has them.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

namespace laga::kernels {

/// A worker's error ends the waits of all others with this; the error itself is
/// the one to report.
struct Abandoned {};

/// Heads are claimed in the order of their numbers, so the lowest one under way
/// waits for nobody and every wait ends, also with one worker.
class Turns {
 public:
  explicit Turns(int64_t steps);

  /// Until all heads below `head` are done with `step`. Throws Abandoned.
  void wait(int64_t step, int64_t head) const;
  void done(int64_t step, int64_t head);
  void abandon();
  bool abandoned() const;

 private:
  std::vector<std::atomic<int64_t>> next_head_; // [steps]
  std::atomic<bool> abandoned_ = false;
};

} // namespace laga::kernels
