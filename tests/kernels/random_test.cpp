// Shapes that nobody thought of. A failure prints the seed:
//   LAGA_TEST_SEED=1234 kernels_test --gtest_filter='*Random*'
#include "laga/core/parse.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>
#include <random>

#include "tests/kernels/on_kernels.h"

namespace laga::kernels::test {
namespace {

class RandomShapes : public OnKernels {};

uint64_t seed() {
  static const uint64_t kSeed = [] {
    const char* const given = std::getenv("LAGA_TEST_SEED");
    const uint64_t value = given != nullptr ? std::strtoull(given, nullptr, 10)
                                            : std::random_device()();
    std::cout << "LAGA_TEST_SEED=" << value << std::endl;
    return value;
  }();
  return kSeed;
}

class Draw {
 public:
  explicit Draw(uint64_t seed) : random_(seed) {}
  // Of [least, most].
  int64_t number(int64_t least, int64_t most) {
    const auto count = static_cast<uint64_t>(most - least + 1);
    return least + static_cast<int64_t>(random_() % count);
  }
  bool coin() {
    return number(0, 1) == 1;
  }

  std::vector<int64_t> lengths(int64_t total, int64_t longest) {
    std::vector<int64_t> lengths;
    while (total > 0) {
      lengths.push_back(number(0, std::min(total, longest)));
      total -= lengths.back();
    }
    return lengths;
  }

  std::vector<MaskSlice> mask(int64_t s_q, int64_t s_kv) {
    switch (number(0, 4)) {
      case 0:
        return {full_mask(s_q, s_kv)};
      case 1:
        return {causal_mask(s_q, s_kv, number(-s_q, s_kv))};
      case 2: // rectangles that begin and end anywhere, apart in the queries
        return rectangles(s_q, s_kv);
      case 3:
        return packed_mask(lengths(std::min(s_q, s_kv), 90));
      default:
        return {{number(0, s_q), s_q, 0, number(0, s_kv), number(-9, 99)}};
    }
  }

  Case a_case() {
    Case a{.name = "random"};
    a.s_q = number(0, 200);
    a.s_kv = number(0, 200);
    a.b = number(1, 2);
    a.h = number(1, 4);
    a.nope = number(1, 70);
    a.rope = number(0, 40);
    a.v = number(1, 70);
    a.mask = mask(a.s_q, a.s_kv);
    a.shared_k_pe = coin();
    a.layout = static_cast<Layout>(number(0, 2));
    a.add = coin();
    switch (number(0, 2)) {
      case 0:
        a.keys_are_values = true;
        a.v = a.nope;
        break;
      case 1:
        a.c = number(1, 70);
        break;
      default:
        break;
    }
    return a;
  }

 private:
  std::vector<MaskSlice> rectangles(int64_t s_q, int64_t s_kv) {
    std::vector<MaskSlice> mask;
    int64_t begin = 0;
    for (const int64_t length : lengths(s_q, 90)) {
      const int64_t k_begin = number(0, s_kv);
      const int64_t k_end = number(k_begin, s_kv);
      const int64_t offset = coin() ? MaskSlice::kFull : number(-s_q, s_kv);
      mask.push_back({begin, begin + length, k_begin, k_end, offset});
      begin += length;
    }
    return mask;
  }

  std::mt19937_64 random_;
};

TEST_P(RandomShapes, AreAsCloseAsThePlainComputation) {
  RecordProperty("seed", std::to_string(seed()));
  constexpr int kCases = 12;
  for (int n = 0; n < kCases && !HasFailure(); ++n) {
    const uint64_t seed_of_case = seed() + static_cast<uint64_t>(n);
    Draw draw(seed_of_case);
    const Case a = draw.a_case();
    RunOptions options{.workers = static_cast<int>(draw.number(1, 3))};
    if (draw.coin()) options.parts = draw.lengths(a.s_kv, 150);
    std::ostringstream trace;
    trace << "LAGA_TEST_SEED=" << seed_of_case << " " << a;
    SCOPED_TRACE(trace.str());
    visit(GetParam(), [&]<class T>(const Kernels<T>& k) {
      const Problem problem = make_problem<T>(a, seed_of_case);
      expect_close(run(k, problem, options), expect_of<T>(problem));
    });
  }
}

INSTANTIATE_TEST_SUITE_P(
    Kernels, RandomShapes, testing::ValuesIn(all_kernels()), kernels_name);

} // namespace
} // namespace laga::kernels::test
