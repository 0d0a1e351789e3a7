// The correctness matrix: small configurations chosen to break things, every
// form, dtype and number of ranks, judged against the fp64 reference.
#pragma once

#include "laga/core/config.h"
#include "laga/core/dtype.h"
#include "laga/core/form.h"
#include "laga/measure/layer_run.h"

#include <functional>
#include <string>
#include <vector>

namespace laga {

struct VerifyCase {
  std::string name;
  MlaConfig config;
  int64_t seq;
  int64_t batch;
  std::vector<int> ranks; // each divides heads and sequence
  bool causal = true;
  int64_t position_shift = 0; // sequence i of the batch starts at i times this
};

/// `quick`: the cases that together show every seeded fault.
std::vector<VerifyCase> verify_cases(bool quick);

/// One run, judged.
struct Verdict {
  std::string case_name;
  Dtype dtype;
  std::string form;
  std::string inner;
  int ranks;
  double output_error;
  NamedError worst_gradient;
  std::vector<std::string> failures; // each names a tensor or a transfer
};

/// Which of the possible runs; an empty list means all.
struct RunSelection {
  std::vector<int> ranks;
  std::vector<std::string> inners;

  bool takes(int rank_count) const;
  /// Of those that `form` can use.
  std::vector<std::string> inners_of(const Form& form) const;
};

/// Relative errors that are still rounding.
struct ErrorLimits {
  double output;
  double gradient;
};

/// Judges a run's results against `exact`, its weight gradients for being equal
/// on all ranks, and its transfers against the prediction.
Verdict judged(
    std::string case_name,
    const LayerTask& task,
    const LayerRun& run,
    const NamedResults& exact,
    const ErrorLimits& limits);

/// Runs all forms of one case in one dtype, with the inner attentions and over
/// those of its rank counts that `selection` takes, and reports each run. The
/// limits: 1e-12 in
/// fp64, some thousand roundings; in fp32 and bf16 twice the error that the
/// plain one-rank computation in the same dtype makes. Predicted and measured
/// transfers must agree in every run.
void verify(
    const VerifyCase& a_case,
    Dtype dtype,
    const RunSelection& selection,
    const Runner& run,
    const std::function<void(const Verdict&)>& report);

} // namespace laga
