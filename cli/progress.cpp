#include "cli/progress.h"

#include <fmt/format.h>

#include <cstdio>

namespace laga::cli {

void Progress::step(const std::string& what) {
  if (!speaks_) return;
  const std::chrono::duration<double> elapsed =
      std::chrono::steady_clock::now() - start_;
  fmt::print(
      stderr,
      "[{:{}}/{}] {:5.1f} s  {}\n",
      ++begun_,
      std::to_string(steps_).size(),
      steps_,
      elapsed.count(),
      what);
}

} // namespace laga::cli
