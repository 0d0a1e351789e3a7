// laga verify: over the built-in matrix, or against other implementations.
#pragma once

#include <string>
#include <vector>

namespace laga::cli {

struct VerifyOptions {
  bool quick = false;
  std::vector<std::string> references; // files; empty: the matrix
  std::vector<int> ranks;              // empty: each case's own
  double deadline_s = 300;
  std::string json;
};

/// Judges every form against files that other implementations wrote. Returns an
/// ExitCode.
int verify_references(const VerifyOptions& options);

} // namespace laga::cli
