// Parameters that are kernels of any number type, and a body for each.
#pragma once

#include <gtest/gtest.h>

#include "tests/kernels/expected.h"
#include "tests/kernels/run.h"

namespace laga::kernels::test {

/// body(const Kernels<T>&), T being the kernels' own.
template <class Body>
void visit(const AnyKernels& kernels, const Body& body) {
  std::visit([&](const auto* k) { body(*k); }, kernels);
}

/// Tests that run once for each of all_kernels().
class OnKernels : public testing::TestWithParam<AnyKernels> {};

inline std::string kernels_name(
    const testing::TestParamInfo<AnyKernels>& info) {
  return name_of(info.param);
}

/// A problem and what its results have to be; the last one asked for is kept,
/// for the next kernels of the same T.
template <class T>
struct Solved {
  Problem problem;
  Expected expected;
};
template <class T>
const Solved<T>& solved(const Case& a_case) {
  static std::string last;
  static Solved<T> result;
  std::ostringstream key;
  key << a_case;
  if (key.str() != last) {
    result.problem = make_problem<T>(a_case);
    result.expected = expect_of<T>(result.problem);
    last = key.str();
  }
  return result;
}

/// Runs the case and compares.
inline void expect_conforms(
    const AnyKernels& kernels,
    const Case& a_case,
    const RunOptions& options = {}) {
  std::ostringstream trace;
  trace << name_of(kernels) << " " << a_case;
  SCOPED_TRACE(trace.str());
  visit(kernels, [&]<class T>(const Kernels<T>& k) {
    const Solved<T>& s = solved<T>(a_case);
    expect_close(run(k, s.problem, options), s.expected);
  });
}

} // namespace laga::kernels::test
