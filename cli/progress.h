// One line a step on stderr, so that a person sees what a long command does.
#pragma once

#include <chrono>
#include <string>

namespace laga::cli {

class Progress {
 public:
  /// `speaks`: false in processes that do not report.
  explicit Progress(int steps, bool speaks = true)
      : steps_(steps), speaks_(speaks) {}

  /// Says what begins now, and how long all has taken.
  void step(const std::string& what);

 private:
  int steps_;
  bool speaks_;
  int begun_ = 0;
  std::chrono::steady_clock::time_point start_ =
      std::chrono::steady_clock::now();
};

} // namespace laga::cli
