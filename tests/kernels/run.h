// Runs kernels on a problem the way a caller would, and watches the memory
// around what they may touch.
#pragma once

#include "laga/kernels/attention.h"

#include <variant>

#include "tests/kernels/problem.h"

namespace laga::kernels::test {

/// Kernels of whichever number type.
using AnyKernels = std::variant<
    const Kernels<Bf16>*,
    const Kernels<float>*,
    const Kernels<double>*>;

/// All that this machine can run, in all number types.
std::vector<AnyKernels> all_kernels();

/// "portable_bf16"
std::string name_of(const AnyKernels& kernels);

struct RunOptions {
  int workers = 1;
  bool threads = true; // else the workers run one after the other
  /// Keys come in parts of so many tokens: the forward resumes, gradients of
  /// the queries are added. Empty: one call sees all.
  std::vector<int64_t> parts = {};
  /// What gradients that are added to start from; not in the results.
  double initial = 0;
};

/// Forward, delta from its output, backward with its lse and delta. Inputs lie
/// among NaN, outputs among numbers that must not change; fails the test where
/// they do, or where scratch was written past its end.
template <class T>
Results run(
    const Kernels<T>& kernels,
    const Problem& problem,
    const RunOptions& options = {});

} // namespace laga::kernels::test
