#include "laga/core/rope.h"

#include <gtest/gtest.h>

#include <cmath>
#include <utility>

#include "tests/core/message_of.h"

namespace laga {
namespace {

// A few roundings of double; the expected numbers are correct to 17 digits.
constexpr double kRelative = 1e-12;

void expect_close(double actual, double expected) {
  EXPECT_NEAR(actual, expected, kRelative * std::abs(expected));
}

using Points = std::vector<std::pair<size_t, double>>;

void expect_frequencies(const MlaConfig& config, const Points& points) {
  const std::vector<double> actual = inverse_frequencies(config);
  ASSERT_EQ(actual.size(), static_cast<size_t>(config.qk_rope_head_dim / 2));
  for (const auto& [pair, expected] : points) {
    SCOPED_TRACE(pair);
    expect_close(actual.at(pair), expected);
  }
}

MlaConfig plain(int64_t r, double theta) {
  MlaConfig config;
  config.qk_nope_head_dim = 128;
  config.qk_rope_head_dim = r;
  config.rope_theta = theta;
  return config;
}

MlaConfig with_yarn(int64_t r, double theta, const Yarn& yarn) {
  MlaConfig config = plain(r, theta);
  config.yarn = yarn;
  return config;
}

// ---- frequencies ------------------------------------------------------------
// Expected values: theta^(-2i / r) and YaRN's ramp in 50-digit decimal
// arithmetic, from the paper's formulas, rounded to double.

TEST(InverseFrequencies, WithoutYarnArePowersOfTheta) {
  expect_frequencies(
      plain(64, 1e6),
      {{0, 1},
       {1, 0.64938163157621132},
       {16, 0.001},
       {31, 1.5399265260594919e-06}});
  expect_frequencies(
      plain(32, 1e4), {{1, 0.56234132519034907}, {15, 0.00017782794100389227}});
}

TEST(InverseFrequencies, OfDeepSeekV3) {
  // The ramp runs over pairs 10 to 23: below, the pair's own angle; above, a
  // fortieth of it.
  expect_frequencies(
      load_config("deepseek-v3"),
      {{0, 1},
       {1, 0.74989420933245587},
       {10, 0.056234132519034911},
       {11, 0.039006926567143857},
       {16, 0.0055},
       {22, 0.00017782794100389227},
       {23, 3.3338035804083099e-05},
       {24, 2.5e-05},
       {31, 3.3338035804083101e-06}});
}

TEST(InverseFrequencies, UntruncatedRampStartsBetweenPairs) {
  MlaConfig config = load_config("deepseek-v3");
  config.yarn->truncate = false; // 10.47 to 22.51
  expect_frequencies(
      config,
      {{10, 0.056234132519034911},
       {11, 0.04036758449441142},
       {16, 0.0055240629774682649},
       {22, 0.00011838773159168905},
       {23, 3.3338035804083099e-05}});
}

TEST(InverseFrequencies, RampDependsOnThetaAndBetas) {
  Yarn yarn{.factor = 32};
  expect_frequencies(
      with_yarn(64, 5e4, yarn),
      {{8, 0.066874030497642206},
       {9, 0.043838750498787403},
       {15, 0.0027273637082358606},
       {19, 0.00018160332304423423},
       {20, 3.6140467735726306e-05},
       {31, 8.764412911589874e-07}});
  yarn.beta_fast = 1; // as beta_slow: a step between pairs 19 and 20
  expect_frequencies(
      with_yarn(64, 5e4, yarn),
      {{19, 0.0016217599081159522}, {20, 3.6140467735726306e-05}});
}

TEST(InverseFrequencies, RampIsClampedToTheHead) {
  // -1.1 to 0.4, so 0 to 1: pair 0 keeps its angle, all others are divided.
  const Yarn yarn{.factor = 4, .original_max_position_embeddings = 16};
  expect_frequencies(
      with_yarn(8, 1e4, yarn), {{0, 1}, {1, 0.025}, {2, 0.0025}, {3, 0.00025}});
}

TEST(InverseFrequencies, RampMayEndBeyondTheLastPair) {
  // 2 to 5, of pairs 0 to 3: pair 3 is a third of the way.
  const Yarn yarn{.factor = 4, .original_max_position_embeddings = 65536};
  expect_frequencies(with_yarn(8, 1e4, yarn), {{2, 0.01}, {3, 0.00075}});
}

TEST(InverseFrequencies, RampWithoutLengthIsAStep) {
  // Both ends are clamped to pair 0.
  const Yarn yarn{
      .factor = 4,
      .original_max_position_embeddings = 6,
      .beta_fast = 1,
      .beta_slow = 1};
  const MlaConfig config = with_yarn(8, 1e4, yarn);
  expect_frequencies(config, {{0, 1}, {1, 0.025}, {3, 0.00025}});
}

TEST(InverseFrequencies, FactorOneChangesNothing) {
  const MlaConfig scaled = with_yarn(64, 1e4, Yarn{.factor = 1});
  const std::vector<double> expected = inverse_frequencies(plain(64, 1e4));
  const std::vector<double> actual = inverse_frequencies(scaled);
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    expect_close(actual[i], expected[i]);
  }
}

TEST(InverseFrequencies, AreNoneWithoutRotation) {
  EXPECT_TRUE(inverse_frequencies(load_config("kimi-linear-48b-a3b")).empty());
}

TEST(InverseFrequencies, DoNotDependOnTheLayout) {
  MlaConfig config = load_config("deepseek-v3");
  const std::vector<double> interleaved = inverse_frequencies(config);
  config.rope = RopeLayout::kHalfSplit;
  EXPECT_EQ(inverse_frequencies(config), interleaved);
}

TEST(InverseFrequencies, RefuseAThetaThatCannotRotate) {
  expect_contains(
      message_of([] { inverse_frequencies(plain(64, 1)); }),
      "config.rope_theta > 1.0 (1 vs 1)");
  expect_contains(
      message_of(
          [] { inverse_frequencies(with_yarn(64, 1e4, Yarn{.factor = 0})); }),
      "factor > 0.0 (0 vs 0)");
}

// ---- amplitude and softmax scale --------------------------------------------

// 0.1 ln 40 + 1
constexpr double kMscale40 = 1.3688879454113936;
// 1 / sqrt(128 + 64)
constexpr double kPlainScale = 0.072168783648703216;
// kPlainScale (0.1 m ln 40 + 1)^2 for m = 1 and m = 0.707
constexpr double kScale40 = 0.13523377886088009;
constexpr double kScale40At707 = 0.11472138679292611;

struct MscaleCase {
  const char* what;
  Yarn yarn;
  double amplitude, scale;
};

TEST(YarnMscale, AmplitudeAndSoftmaxScaleFollowWhatIsSet) {
  const MscaleCase cases[] = {
      {"both 1", {.factor = 40, .mscale = 1, .mscale_all_dim = 1}, 1, kScale40},
      {"1 and 0.707",
       {.factor = 40, .mscale = 1, .mscale_all_dim = 0.707},
       1.0857263992561357,
       kScale40At707},
      {"both 0.707",
       {.factor = 40, .mscale = 0.707, .mscale_all_dim = 0.707},
       1,
       kScale40At707},
      {"neither", {.factor = 40}, kMscale40, kPlainScale},
      // The amplitude ignores a lone one; the softmax scale needs only its own.
      {"mscale only", {.factor = 40, .mscale = 0.5}, kMscale40, kPlainScale},
      {"mscale_all_dim only",
       {.factor = 40, .mscale_all_dim = 1},
       kMscale40,
       kScale40},
      {"zeros are not set",
       {.factor = 40, .mscale = 0, .mscale_all_dim = 0},
       kMscale40,
       kPlainScale},
      {"attention_factor wins over mscale, not over the softmax scale",
       {.factor = 40,
        .mscale = 1,
        .mscale_all_dim = 0.707,
        .attention_factor = 1.25},
       1.25,
       kScale40At707},
      {"factor 1",
       {.factor = 1, .mscale = 1, .mscale_all_dim = 0.707},
       1,
       kPlainScale},
      {"factor below 1", {.factor = 0.5, .mscale_all_dim = 1}, 1, kPlainScale},
  };
  for (const MscaleCase& test : cases) {
    SCOPED_TRACE(test.what);
    const MlaConfig config = with_yarn(64, 1e4, test.yarn);
    expect_close(rope_amplitude(config), test.amplitude);
    expect_close(softmax_scale(config), test.scale);
  }
}

TEST(SoftmaxScale, OfDeepSeekV3HasMscaleSquared) {
  const double m = 0.1 * std::log(40.0) + 1;
  const MlaConfig config = load_config("deepseek-v3");
  expect_close(softmax_scale(config), 1 / std::sqrt(192.0) * m * m);
  EXPECT_EQ(rope_amplitude(config), 1);
}

TEST(SoftmaxScale, WithoutYarnIsOneOverTheRootOfTheHeadDim) {
  expect_close(softmax_scale(load_config("glm-4.7-flash")), 1.0 / 16);
  expect_close(softmax_scale(load_config("kimi-linear-48b-a3b")), kPlainScale);
  EXPECT_EQ(rope_amplitude(load_config("glm-4.7-flash")), 1);
  EXPECT_EQ(rope_amplitude(load_config("kimi-linear-48b-a3b")), 1);
}

TEST(SoftmaxScale, OverrideReplacesAll) {
  MlaConfig config = load_config("deepseek-v3");
  config.softmax_scale = 0.5;
  EXPECT_EQ(softmax_scale(config), 0.5);
}

} // namespace
} // namespace laga
