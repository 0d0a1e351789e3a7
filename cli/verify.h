// laga verify: over the built-in matrix, or against other implementations.
#pragma once

#include "laga/measure/verification.h"

#include <string>
#include <vector>

#include "cli/engine.h"

namespace laga::cli {

struct VerifyOptions {
  bool quick = false;
  std::vector<std::string> references; // files; empty: the matrix
  RunSelection selection;              // rank counts: of each case's own
  double deadline_s = 300;
  std::string json;
};

/// Judges every form against files that other implementations wrote, over the
/// selected rank counts that each file allows. Returns an ExitCode.
int verify_references(const VerifyOptions& options, const Engine& engine);

} // namespace laga::cli
