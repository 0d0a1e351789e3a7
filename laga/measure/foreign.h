// Every form against results that somebody else's implementation wrote into a
// safetensors file (tests/reference/hf_ref.py and mcore_ref.py write such
// files; their heads describe the format).
#pragma once

#include "laga/measure/layer_run.h"
#include "laga/measure/verification.h"

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace laga {

/// A file's content: what goes in, and what came out over there. Ours is
/// sequence first, the file batch first.
struct ForeignCase {
  std::string name;           // the file's, without its folder and ending
  std::string implementation; // "transformers 4.57.6"
  MlaConfig config;
  Dtype dtype = Dtype::kFp64;
  int64_t seq = 0;
  int64_t batch = 0;
  LayerInputs inputs;
  at::Tensor positions; // [S, b], int64
  NamedResults results; // theirs: "output", "grad.hidden_states", ...
  // Only to compare ours with, never used.
  at::Tensor cos; // [S, b, r], as for half-split pairs; undefined without RoPE
  at::Tensor sin;
  double softmax_scale = 0;
  std::optional<double> latent_norm_eps = {};
};

/// Throws InvalidArgument naming the file and the tensor or the metadata that
/// is missing, damaged, of another shape or dtype, or not of this format.
ForeignCase read_foreign_case(const std::string& path);

/// What their constants allow the errors to be.
struct ForeignLimits {
  ErrorLimits errors{0, 0};
  std::string reason; // of the limits, in words
  /// max |theirs - ours| of cos and sin, relative to their amplitude.
  double table_difference = 0;
  double scale_difference = 0; // of the softmax scale, relative
  /// cos, sin, the scale or eps that are not ours; each names which.
  std::vector<std::string> failures;
};

/// Compares cos, sin, the softmax scale and eps with ours. The limit in fp64 is
/// 1e-11, and where cos and sin differ by what computing them in fp32 explains,
/// it follows from that difference, 1e-7 at most. In fp32 and bf16 it is four
/// times what the plain computation in that dtype is off, and what a less exact
/// table adds.
ForeignLimits foreign_limits(const ForeignCase& a_case);

/// Runs all forms with the inner attentions and over the rank counts that they
/// can use and `selection` takes, and reports each run. `limits.failures` are
/// the caller's to report.
void verify_foreign(
    const ForeignCase& a_case,
    const ForeignLimits& limits,
    const RunSelection& selection,
    const Runner& run,
    const std::function<void(const Verdict&)>& report);

} // namespace laga
