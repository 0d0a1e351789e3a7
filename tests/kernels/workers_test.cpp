// Equal bits for any number of workers, however they run.
#include <gtest/gtest.h>

#include "tests/kernels/on_kernels.h"

namespace laga::kernels::test {
namespace {

class ManyWorkers : public OnKernels {};

// More heads than workers, a number that none divides, and sums over heads
// wherever there may be one.
std::vector<Case> shared_cases() {
  Case shared_k_pe{
      .name = "shared_k_pe", .s_q = 71, .s_kv = 131, .b = 2, .h = 7};
  shared_k_pe.mask = {causal_mask(71, 131, 60)};
  Case per_head = shared_k_pe;
  per_head.name = "per_head";
  per_head.shared_k_pe = false;
  Case absorbed = shared_k_pe;
  absorbed.name = "absorbed";
  absorbed.nope = absorbed.v = 21;
  absorbed.keys_are_values = true;
  Case latent = shared_k_pe;
  latent.name = "latent";
  latent.c = 19;
  Case only_latent = per_head;
  only_latent.name = "only_latent";
  only_latent.c = 19;
  return {shared_k_pe, per_head, absorbed, latent, only_latent};
}

TEST_P(ManyWorkers, AnyNumberGivesTheSameBits) {
  for (const Case& a : shared_cases()) {
    SCOPED_TRACE(a.name);
    visit(GetParam(), [&]<class T>(const Kernels<T>& k) {
      const Problem problem = make_problem<T>(a);
      const Results one = run(k, problem);
      for (const int workers : {2, 3, 4}) {
        for (const bool threads : {false, true}) {
          SCOPED_TRACE(workers);
          expect_same_bits(
              run(k, problem, {.workers = workers, .threads = threads}), one);
        }
      }
    });
  }
}

TEST_P(ManyWorkers, TwoRunsGiveTheSameBits) {
  for (const Case& a : shared_cases()) {
    SCOPED_TRACE(a.name);
    visit(GetParam(), [&]<class T>(const Kernels<T>& k) {
      const Problem problem = make_problem<T>(a);
      const Results first = run(k, problem, {.workers = 3});
      expect_same_bits(run(k, problem, {.workers = 3}), first);
    });
  }
}

// A head's numbers do not depend on which heads it is computed with: LAGA's
// ranks have different ones.
TEST_P(ManyWorkers, HeadAloneHasTheBitsItHasAmongOthers) {
  Case a{.name = "all", .s_q = 71, .s_kv = 131, .b = 2, .h = 3};
  a.mask = {causal_mask(71, 131, 60)};
  visit(GetParam(), [&]<class T>(const Kernels<T>& k) {
    const Problem all = make_problem<T>(a);
    const Results together = run(k, all);
    for (int64_t h = 0; h < a.h; ++h) {
      Problem one = all;
      one.sizes.h = 1;
      for (Tensor Problem::*const x :
           {&Problem::q_nope,
            &Problem::q_pe,
            &Problem::k_nope,
            &Problem::v,
            &Problem::d_out}) {
        const Tensor& from = all.*x;
        Tensor& to = one.*x;
        to = Tensor(from.tokens, from.batch, 1, from.width);
        for (int64_t t = 0; t < from.tokens; ++t) {
          for (int64_t b = 0; b < from.batch; ++b)
            std::copy_n(from.row(t, b, h), from.width, to.row(t, b, 0));
        }
      }
      const Results alone = run(k, one);
      for (const char* const name : {"out", "lse", "d_q_nope", "d_k_nope"}) {
        const Tensor &x = alone.at(name), &y = together.at(name);
        for (int64_t t = 0; t < y.tokens; ++t) {
          for (int64_t b = 0; b < y.batch; ++b) {
            ASSERT_TRUE(std::equal(
                x.row(t, b, 0), x.row(t, b, 0) + x.width, y.row(t, b, h)))
                << name << " token " << t << " head " << h;
          }
        }
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(
    Kernels, ManyWorkers, testing::ValuesIn(all_kernels()), kernels_name);

} // namespace
} // namespace laga::kernels::test
