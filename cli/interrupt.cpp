#include "cli/interrupt.h"

#include "laga/core/check.h"

#include <unistd.h>

#include <csignal>
#include <cstring>

namespace laga::cli {

namespace {

// A handler may only touch plain memory and call async-signal-safe functions.
constexpr size_t kSlots = 2; // --json and --output
char unfinished_files[kSlots][4096];

void leave(int signal) {
  for (const char* file : unfinished_files) {
    if (file[0] != '\0') unlink(file);
  }
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

RemoveIfInterrupted::RemoveIfInterrupted(const std::string& path) {
  while (slot_ < kSlots && unfinished_files[slot_][0] != '\0')
    ++slot_;
  LAGA_CHECK_LT(slot_, kSlots, "unfinished files at a time");
  LAGA_CHECK_LT(path.size(), sizeof(unfinished_files[0]), "path ", path);
  std::strcpy(unfinished_files[slot_], path.c_str());
}

RemoveIfInterrupted::~RemoveIfInterrupted() {
  unfinished_files[slot_][0] = '\0';
}

} // namespace laga::cli
