// Runs held against what was predicted of them: every transfer to the byte, and
// memory tensor by tensor.
#pragma once

#include "laga/measure/layer_run.h"

#include <functional>
#include <string>
#include <vector>

namespace laga {

struct AccountingCase {
  MlaConfig config;
  RunShape shape;
  bool ghost = false; // one rank alone; else all, on threads
};

/// Peaks of all but kOdd are over 64 MiB.
enum class AccountingSweep {
  kOdd,    // odd widths, P = 1 ... 8, batch 1 ... 3, with and without q_lora
  kNarrow, // models' heads and latents on a narrow input: half a minute
  kModels, // whole layers: minutes
};
std::vector<AccountingCase> accounting_cases(AccountingSweep sweep);

/// One run; of several ranks the one that is furthest off.
struct AccountedRun {
  std::string model, form, inner;
  RunShape shape;
  bool send_delta = false;
  bool ghost = false;
  int transfers = 0;           // of all ranks together
  int64_t byte_difference = 0; // largest of any transfer, sent
  int64_t predicted_saved = 0;
  int64_t predicted_peak = 0;
  MemoryBytes measured = {};
  /// What is not as predicted: a transfer by name; bytes saved, to the byte;
  /// a peak that is off by more than 1 %.
  std::vector<std::string> failures = {};

  int64_t unexplained_saved() const {
    return measured.saved - predicted_saved;
  }
  int64_t unexplained_peak() const {
    return measured.peak - predicted_peak;
  }
};

/// Runs a case with all forms and the inner attentions that they can use, where
/// they can with delta sent as well, and reports each run.
void account(
    const AccountingCase& a_case,
    const std::function<void(const AccountedRun&)>& report);

} // namespace laga
