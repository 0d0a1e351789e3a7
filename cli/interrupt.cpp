#include "cli/interrupt.h"

#include "laga/core/check.h"

#include <unistd.h>

#include <csignal>
#include <cstring>

namespace laga::cli {

namespace {

// A handler may only touch plain memory and call async-signal-safe functions.
char unfinished_file[4096];

void leave(int signal) {
  if (unfinished_file[0] != '\0') unlink(unfinished_file);
  // SIGTERM comes from a launcher or a script, which knows what it does.
  constexpr char kMessage[] = "\nlaga: interrupted\n";
  if (signal == SIGINT &&
      write(STDERR_FILENO, kMessage, sizeof(kMessage) - 1) < 0) {
    // Nobody is listening; the exit code says it as well.
  }
  _exit(128 + signal);
}

} // namespace

void handle_interrupts() {
  std::signal(SIGINT, leave);
  std::signal(SIGTERM, leave);
}

void remove_if_interrupted(const std::string& path) {
  LAGA_CHECK_LT(path.size(), sizeof(unfinished_file), "path ", path);
  std::strcpy(unfinished_file, path.c_str());
}

} // namespace laga::cli
