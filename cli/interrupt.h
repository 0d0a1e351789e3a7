// Ctrl-C and SIGTERM: leave at once, and leave nothing half-written behind.
#pragma once

#include <cstddef>
#include <string>

namespace laga::cli {

/// Exits with 128 + the signal's number after removing what is registered.
void handle_interrupts();

/// A file to remove if the program is interrupted while this lives. Throws
/// InvalidArgument for a path too long to be one.
class RemoveIfInterrupted {
 public:
  explicit RemoveIfInterrupted(const std::string& path);
  ~RemoveIfInterrupted();
  RemoveIfInterrupted(const RemoveIfInterrupted&) = delete;
  RemoveIfInterrupted& operator=(const RemoveIfInterrupted&) = delete;

 private:
  size_t slot_ = 0;
};

} // namespace laga::cli
