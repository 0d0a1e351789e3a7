// Ctrl-C and SIGTERM: leave at once, and leave nothing half-written behind.
#pragma once

#include <string>

namespace laga::cli {

/// Exits with 128 + the signal's number after removing what is registered.
void handle_interrupts();

/// A file to remove if the program is interrupted; an empty path forgets it.
void remove_if_interrupted(const std::string& path);

} // namespace laga::cli
