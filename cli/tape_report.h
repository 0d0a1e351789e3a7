// A memory tape as people read it.
#pragma once

#include "laga/plan/tape.h"

#include <cstdio>
#include <string>

namespace laga::cli {

/// The tensors alive at `moment`, the largest first, with their shapes in named
/// dimensions, and their sum. `title` says which moment it is.
void print_tape(
    const MemoryTape& tape,
    int moment,
    const std::string& title,
    std::FILE* stream);

} // namespace laga::cli
