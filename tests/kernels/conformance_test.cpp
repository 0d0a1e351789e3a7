// All kernels at sizes, masks and layouts that break kernels: each case is one
// test for each of them, judged by expected.h.
#include <gtest/gtest.h>

#include "tests/kernels/on_kernels.h"

namespace laga::kernels::test {
namespace {

using Cases = std::vector<Case>;

std::vector<MaskSlice> full(int64_t s_q, int64_t s_kv) {
  return {full_mask(s_q, s_kv)};
}

std::vector<MaskSlice> causal(int64_t s_q, int64_t s_kv, int64_t offset = 0) {
  return {causal_mask(s_q, s_kv, offset)};
}

// Around blocks of 64: 0, 1, 2N/3, N-1, N, N+1, 8N+2.
Cases sizes() {
  const std::vector<int64_t> tokens{0, 1, 42, 63, 64, 65, 514};
  Cases cases;
  for (const int64_t q : tokens) {
    for (const int64_t k : tokens) {
      const std::string name =
          "q" + std::to_string(q) + "_k" + std::to_string(k);
      // The last query sees all keys: rows without one where q > k.
      cases.push_back(
          {.name = name, .s_q = q, .s_kv = k, .mask = causal(q, k, k - q)});
      cases.push_back(
          {.name = name + "_full", .s_q = q, .s_kv = k, .mask = full(q, k)});
    }
  }
  return cases;
}

struct Widths {
  int64_t nope, rope, v;
};

// configs/models, the smallest ones, and the odd ones.
Cases widths() {
  const std::vector<Widths> all{
      {128, 64, 128},
      {64, 32, 64},
      {64, 64, 128},
      {192, 64, 256},
      {5, 3, 7},
      {1, 0, 1},
      {1, 2, 33},
      {24, 0, 16},
      {17, 31, 15},
      {96, 16, 80}};
  Cases cases;
  for (const auto& [nope, rope, v] : all) {
    const std::string name = "w" + std::to_string(nope) + "_" +
                             std::to_string(rope) + "_" + std::to_string(v);
    Case a{.name = name, .s_q = 65, .s_kv = 130};
    a.nope = nope;
    a.rope = rope;
    a.v = v;
    a.mask = causal(a.s_q, a.s_kv, 65);
    cases.push_back(a);
    a.name += "_one_query";
    a.s_q = 1;
    a.mask = full(a.s_q, a.s_kv);
    cases.push_back(a);
  }
  return cases;
}

// LAGA's latent space: keys are the latent beside k_pe, values the latent.
Cases absorbed() {
  Cases cases;
  for (const auto& [c, rope] : std::vector<std::pair<int64_t, int64_t>>{
           {512, 64}, {256, 32}, {40, 8}, {19, 5}, {16, 0}}) {
    Case a{.name = "c" + std::to_string(c) + "_" + std::to_string(rope)};
    a.s_q = c > 100 ? 33 : 100;
    a.s_kv = 66;
    a.h = 3;
    a.nope = a.v = c;
    a.rope = rope;
    a.keys_are_values = true;
    a.mask = causal(a.s_q, a.s_kv, 40);
    cases.push_back(a);
  }
  return cases;
}

Cases latent() {
  Cases cases;
  for (const auto& [c, rope] :
       std::vector<std::pair<int64_t, int64_t>>{{512, 64}, {37, 3}, {16, 0}}) {
    Case a{.name = "c" + std::to_string(c)};
    a.s_q = 70;
    a.s_kv = 67;
    a.b = 2;
    a.h = 3;
    a.c = c;
    a.rope = rope;
    if (c == 512) {
      a.nope = a.v = 128;
      a.b = 1;
      a.h = 2;
    }
    a.mask = causal(a.s_q, a.s_kv);
    cases.push_back(a);
    a.name += "_add_k_pe_per_head";
    a.add = true;
    a.shared_k_pe = false;
    cases.push_back(a);
  }
  Case empty{.name = "no_keys", .s_q = 9, .s_kv = 0};
  empty.c = 16;
  cases.push_back(empty);
  empty = {.name = "no_queries", .s_q = 0, .s_kv = 9};
  empty.c = 16;
  cases.push_back(empty);
  return cases;
}

Cases masks() {
  const auto with = [](const std::string& name, std::vector<MaskSlice> mask) {
    Case a{
        .name = name, .s_q = 150, .s_kv = 150, .nope = 24, .rope = 8, .v = 16};
    a.mask = std::move(mask);
    return a;
  };
  Cases cases{
      with("full", full(150, 150)),
      with("causal", causal(150, 150)),
      with("sees_ahead", causal(150, 150, 17)),
      with("looks_back", causal(150, 150, -17)),
      with("nobody_sees_anything", causal(150, 150, -150)),
      with("no_slice", {}),
      with(
          "empty_slices", {{3, 3, 0, 150, 0}, {0, 150, 9, 9}, {0, 150, 0, 99}}),
      with("hole_in_the_keys", {{0, 150, 0, 31}, {0, 150, 97, 150, 0}}),
      with("hole_in_the_queries", {{0, 31, 0, 150}, {97, 150, 0, 150, 0}}),
      with("keys_nobody_sees", {{0, 150, 5, 64}}),
      // Window of 20: the slices of a band in blocks, in no order.
      with(
          "band",
          {{100, 150, 80, 150, 0}, {0, 50, 0, 50, 0}, {50, 100, 30, 100, 0}}),
      with("packed", packed_mask({1, 63, 2, 65, 19})),
      with(
          "two_slices_of_a_row",
          {{0, 150, 100, 150, -20}, {0, 150, 0, 100, 3}})};
  for (int64_t rank = 0; rank < 3; ++rank) {
    Case a = with("zigzag_" + std::to_string(rank), zigzag_mask(3, rank, 35));
    a.s_q = 70;
    a.s_kv = 210;
    cases.push_back(a);
  }
  return cases;
}

Cases layouts() {
  Cases cases;
  const std::vector<std::pair<Layout, std::string>> all{
      {Layout::kDense, "dense"},
      {Layout::kPadded, "padded"},
      {Layout::kHeadsFirst, "heads_first"}};
  for (const auto& [layout, name] : all) {
    for (const bool add : {false, true}) {
      for (const bool shared : {false, true}) {
        Case a{.name = name, .s_q = 67, .s_kv = 70};
        a.name += add ? "_add" : "_store";
        a.name += shared ? "_shared_k_pe" : "_k_pe_per_head";
        a.layout = layout;
        a.add = add;
        a.shared_k_pe = shared;
        a.b = 3;
        a.h = 3;
        a.nope = 18;
        a.mask = causal(a.s_q, a.s_kv);
        cases.push_back(a);
      }
    }
  }
  return cases;
}

// Scores of some 1e4: exp() must neither overflow nor lose its argument.
Cases huge_scores() {
  Cases cases;
  for (const bool latent : {false, true}) {
    Case a{.name = latent ? "latent" : "explicit", .s_q = 66, .s_kv = 131};
    a.nope = 24;
    a.rope = 8;
    a.c = latent ? 32 : 0;
    a.score_size = 3000;
    a.mask = causal(a.s_q, a.s_kv, 20);
    cases.push_back(a);
  }
  return cases;
}

using Param = std::tuple<Case, AnyKernels>;

std::string param_name(const testing::TestParamInfo<Param>& info) {
  return std::get<0>(info.param).name + "_" + name_of(std::get<1>(info.param));
}

class Attention : public testing::TestWithParam<Param> {};

TEST_P(Attention, IsAsCloseAsThePlainComputation) {
  const auto& [a_case, kernels] = GetParam();
  expect_conforms(kernels, a_case);
}

auto on_all(const Cases& cases) {
  return testing::Combine(
      testing::ValuesIn(cases), testing::ValuesIn(all_kernels()));
}

INSTANTIATE_TEST_SUITE_P(Sizes, Attention, on_all(sizes()), param_name);
INSTANTIATE_TEST_SUITE_P(Widths, Attention, on_all(widths()), param_name);
INSTANTIATE_TEST_SUITE_P(Absorbed, Attention, on_all(absorbed()), param_name);
INSTANTIATE_TEST_SUITE_P(Latent, Attention, on_all(latent()), param_name);
INSTANTIATE_TEST_SUITE_P(Masks, Attention, on_all(masks()), param_name);
INSTANTIATE_TEST_SUITE_P(Layouts, Attention, on_all(layouts()), param_name);
INSTANTIATE_TEST_SUITE_P(Scores, Attention, on_all(huge_scores()), param_name);

} // namespace
} // namespace laga::kernels::test
