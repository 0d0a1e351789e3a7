#include "cli/command.h"

#include "laga/comm/mpi/mpi.h"
#include "laga/core/check.h"

#include <fmt/format.h>

#include <cstdio>
#include <fstream>
#include <limits>
#include <new>
#include <thread>

namespace laga::cli {

namespace {

// torch appends a stack trace to its messages; the first line says it.
std::string first_line(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

// All ranks make the same mistake of their caller's alike: rank 0 tells, and
// the others leave it the time before their exit makes the launcher end it.
// What else fails is a rank's own story, and the end of all.
int failed(ExitCode code, const std::string& message) {
  if (!launched_by_mpi()) {
    fmt::print(stderr, "laga: {}\n", message);
    return code;
  }
  if (code == kBadInput && launched_rank() != 0) {
    std::this_thread::sleep_for(std::chrono::seconds(2));
    return code;
  }
  fmt::print(stderr, "laga: rank {}: {}\n", launched_rank(), message);
  if (code == kSystemFailed) mpi_abort(code);
  return code;
}

} // namespace

int guarded(const std::function<int()>& command) {
  try {
    const int code = command();
    mpi_finalize();
    return code;
  } catch (const InvalidArgument& error) {
    return failed(kBadInput, error.what());
  } catch (const std::bad_alloc&) {
    return failed(kSystemFailed, "out of memory");
  } catch (const std::exception& error) {
    return failed(kSystemFailed, first_line(error.what()));
  }
}

// MemAvailable of Linux; other systems have no such file.
double available_memory() {
  std::ifstream info("/proc/meminfo");
  std::string name, unit;
  double kilobytes = 0;
  while (info >> name >> kilobytes) {
    std::getline(info, unit);
    if (name == "MemAvailable:") return kilobytes * 1024;
  }
  return std::numeric_limits<double>::infinity();
}

void check_memory(double bytes, const std::string& advice) {
  const double available = available_memory();
  if (bytes <= available) return;
  throw InvalidArgument(fmt::format(
      "[check_memory] this needs about {:.1f} GB and {:.1f} GB are available. "
      "{}",
      bytes / 1e9,
      available / 1e9,
      advice));
}

} // namespace laga::cli
