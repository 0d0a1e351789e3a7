// Keys that come in parts: resumed softmax, gradients that are added to.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/kernels/on_kernels.h"

namespace laga::kernels::test {
namespace {

class InParts : public OnKernels {};

Case explicit_case() {
  Case a{.name = "explicit", .s_q = 97, .s_kv = 140, .b = 2, .h = 3};
  a.mask = {causal_mask(a.s_q, a.s_kv, 30)};
  return a;
}

Case absorbed_case() {
  Case a = explicit_case();
  a.name = "absorbed";
  a.nope = a.v = 19;
  a.keys_are_values = true;
  return a;
}

Case latent_case() {
  Case a = explicit_case();
  a.name = "latent";
  a.c = 21;
  return a;
}

// Queries of the first parts see nothing of the last ones and the reverse.
Case packed_case() {
  Case a = explicit_case();
  a.name = "packed";
  a.s_q = 140;
  a.mask = packed_mask({50, 1, 89});
  return a;
}

TEST_P(InParts, KeysGiveWhatTheyGiveAtOnce) {
  for (Case a :
       {explicit_case(), absorbed_case(), latent_case(), packed_case()}) {
    for (const bool add : {false, true}) {
      a.add = add;
      for (const std::vector<int64_t>& parts :
           {std::vector<int64_t>{140},
            std::vector<int64_t>{63, 1, 0, 76},
            std::vector<int64_t>{0, 139, 1},
            std::vector<int64_t>(20, 7)}) {
        expect_conforms(GetParam(), a, {.parts = parts});
      }
    }
  }
}

TEST_P(InParts, GradientsAreAddedToWhatIsThere) {
  for (Case a : {explicit_case(), absorbed_case(), latent_case()}) {
    a.add = true;
    visit(GetParam(), [&]<class T>(const Kernels<T>& k) {
      const Solved<T>& s = solved<T>(a);
      const RunOptions options{.workers = 2, .parts = {70, 70}, .initial = 1};
      // Each addition to about 1 rounds, by at most an epsilon of what is
      // there: one for each part or head.
      Expected expected = s.expected;
      for (auto& [name, bound] : expected.bound) {
        double largest = options.initial;
        for (const double x : expected.exact.at(name).values) {
          if (std::isfinite(x)) {
            largest = std::max(largest, options.initial + std::abs(x));
          }
        }
        bound += 3 * kEpsilon<Accumulator<T>> * largest;
      }
      expect_close(run(k, s.problem, options), expected);
    });
  }
}

INSTANTIATE_TEST_SUITE_P(
    Kernels, InParts, testing::ValuesIn(all_kernels()), kernels_name);

} // namespace
} // namespace laga::kernels::test
