// laga verify: over the built-in matrix, against other implementations, or what
// was predicted.
#pragma once

#include "laga/measure/verification.h"

#include <string>
#include <vector>

#include "cli/engine.h"

namespace laga::cli {

struct VerifyOptions {
  bool quick = false;
  bool accounting = false;
  std::vector<std::string> references; // files; empty: the matrix
  RunSelection selection;              // rank counts: of each case's own
  double deadline_s = 300;
  std::string json;
};

/// Judges every form against files that other implementations wrote, over the
/// selected rank counts that each file allows. Returns an ExitCode.
int verify_references(const VerifyOptions& options, const Engine& engine);

/// Holds runs' bytes and memory against their prediction. Returns an ExitCode.
int verify_accounting(const VerifyOptions& options, const Engine& engine);

} // namespace laga::cli
