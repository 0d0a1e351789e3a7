// What the kernels are judged by, judged itself: known answers, and gradients
// against finite differences.
#include "tests/kernels/plain.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/kernels/expected.h"

namespace laga::kernels::test {
namespace {

TEST(Plain, LoneKeyGivesItsValueAndItsScore) {
  Case a{.name = "one_key", .s_q = 3, .s_kv = 1};
  a.mask = {full_mask(3, 1)};
  const Problem p = make_problem<double>(a);
  const Results results = exact_results<double>(p);
  for (int64_t i = 0; i < a.s_q; ++i) {
    for (int64_t h = 0; h < a.h; ++h) {
      double score = 0;
      for (int64_t x = 0; x < a.nope; ++x)
        score += p.q_nope.row(i, 0, h)[x] * p.k_nope.row(0, 0, h)[x];
      for (int64_t x = 0; x < a.rope; ++x)
        score += p.q_pe.row(i, 0, h)[x] * p.k_pe.row(0, 0, 0)[x];
      EXPECT_NEAR(*results.at("lse").row(i, 0, h), p.scale * score, 1e-14);
      for (int64_t x = 0; x < a.v; ++x) {
        EXPECT_EQ(results.at("out").row(i, 0, h)[x], p.v.row(0, 0, h)[x]);
      }
    }
  }
}

TEST(Plain, EqualScoresGiveTheMeanOfTheSeenValues) {
  Case a{.name = "equal", .s_q = 4, .s_kv = 4};
  a.mask = {causal_mask(4, 4)};
  Problem p = make_problem<double>(a);
  std::fill(p.q_nope.values.begin(), p.q_nope.values.end(), 0.0);
  std::fill(p.q_pe.values.begin(), p.q_pe.values.end(), 0.0);
  const Results results = exact_results<double>(p);
  for (int64_t i = 0; i < 4; ++i) {
    const auto seen = static_cast<double>(i + 1);
    EXPECT_NEAR(*results.at("lse").row(i, 0, 1), std::log(seen), 1e-15);
    double sum = 0;
    for (int64_t j = 0; j <= i; ++j)
      sum += p.v.row(j, 0, 1)[2];
    EXPECT_NEAR(results.at("out").row(i, 0, 1)[2], sum / seen, 1e-15);
  }
}

TEST(Plain, RowWithoutKeysIsZeroWithMinusInfinity) {
  Case a{.name = "no_key", .s_q = 2, .s_kv = 2};
  a.mask = {causal_mask(2, 2, -1)};
  const Results results = exact_results<double>(make_problem<double>(a));
  EXPECT_EQ(*results.at("lse").row(0, 0, 0), -INFINITY);
  EXPECT_EQ(*results.at("out").row(0, 0, 0), 0);
  EXPECT_EQ(*results.at("d_q_nope").row(0, 0, 0), 0);
  EXPECT_TRUE(std::isfinite(*results.at("lse").row(1, 0, 0)));
}

// sum(out d_out), whose gradient the backward computes.
double loss(const Problem& p) {
  const Tensor out = exact_results<double>(p).at("out");
  double sum = 0;
  for (size_t i = 0; i < out.values.size(); ++i)
    sum += out.values[i] * p.d_out.values[i];
  return sum;
}

// Central differences with step h err by h^2 times a third derivative of order
// 1, and by the loss's rounding, 1e-15, over h: some 1e-10 both.
void expect_gradient(
    Problem p, std::vector<Tensor Problem::*> inputs, const Tensor& gradient) {
  constexpr double kStep = 1e-5, kTolerance = 2e-9;
  for (size_t i = 0; i < gradient.values.size(); ++i) {
    std::array<double, 2> losses;
    for (const int sign : {-1, 1}) {
      // One memory under several names moves under all.
      for (const auto input : inputs)
        (p.*input).values[i] += sign * kStep;
      losses[sign > 0] = loss(p);
      for (const auto input : inputs)
        (p.*input).values[i] -= sign * kStep;
    }
    EXPECT_NEAR(
        gradient.values[i], (losses[1] - losses[0]) / (2 * kStep), kTolerance)
        << i;
  }
}

Case tiny() {
  Case a{.name = "tiny", .s_q = 4, .s_kv = 5, .b = 2, .h = 2};
  a.nope = 3;
  a.rope = 2;
  a.v = 3;
  a.mask = {causal_mask(4, 5, 1)};
  return a;
}

TEST(Plain, GradientsAreFiniteDifferences) {
  for (const bool shared : {false, true}) {
    Case a = tiny();
    a.shared_k_pe = shared;
    const Problem p = make_problem<double>(a);
    const Results d = exact_results<double>(p);
    expect_gradient(p, {&Problem::q_nope}, d.at("d_q_nope"));
    expect_gradient(p, {&Problem::q_pe}, d.at("d_q_pe"));
    expect_gradient(p, {&Problem::k_nope}, d.at("d_k_nope"));
    expect_gradient(p, {&Problem::k_pe}, d.at("d_k_pe"));
    expect_gradient(p, {&Problem::v}, d.at("d_v"));
  }
}

TEST(Plain, GradientsThroughTheLatentAreFiniteDifferences) {
  Case a = tiny();
  a.c = 4;
  const Problem p = make_problem<double>(a);
  const Results d = exact_results<double>(p);
  expect_gradient(p, {&Problem::latent}, d.at("d_latent"));
  expect_gradient(p, {&Problem::kv_b}, d.at("d_kv_b"));
}

TEST(Plain, GradientOfKeysThatAreValuesIsAFiniteDifference) {
  Case a = tiny();
  a.keys_are_values = true;
  const Problem p = make_problem<double>(a);
  const Results d = exact_results<double>(p);
  expect_gradient(p, {&Problem::k_nope, &Problem::v}, d.at("d_keys_values"));
}

// A wrong index or mask is off by about the largest number; rounding to T by a
// small part of it. The bounds lie between.
template <class T>
void expect_bounds_below(double part) {
  for (const int64_t c : {0, 16}) {
    Case a{.name = "usual", .s_q = 65, .s_kv = 130};
    a.c = c;
    a.mask = {causal_mask(65, 130, 65)};
    const Expected expected = expect_of<T>(make_problem<T>(a));
    for (const auto& [name, exact] : expected.exact) {
      double largest = 0;
      for (const double x : exact.values)
        largest = std::max(largest, std::abs(x));
      EXPECT_LT(expected.bound.at(name), part * largest) << name;
    }
  }
}

TEST(Expected, BoundsAreAFewRoundingsOfTheLargestNumber) {
  expect_bounds_below<Bf16>(8 * kEpsilon<Bf16>);
  expect_bounds_below<float>(100 * kEpsilon<float>);
  expect_bounds_below<double>(100 * kEpsilon<double>);
}

} // namespace
} // namespace laga::kernels::test
