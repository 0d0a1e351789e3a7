// The rotary fields of a config.json, in both spellings.
#include "laga/core/config.h"

#include <gtest/gtest.h>

#include "tests/core/config_text.h"

namespace laga {
namespace {

using Reasons = std::vector<std::string>;

/// The small model with this rope_scaling: YaRN, changed by `changes`.
FieldTexts yarn_with(const FieldTexts& changes) {
  FieldTexts rope{
      {"type", "\"yarn\""},
      {"factor", "40"},
      {"original_max_position_embeddings", "4096"}};
  for (const auto& [name, value] : changes)
    rope[name] = value;
  return {{"rope_scaling", object_text(rope)}};
}

Yarn yarn_of(const FieldTexts& changes) {
  return parsed(changes).yarn.value();
}

// ---- layout -----------------------------------------------------------------

TEST(RopeConfig, LayoutFollowsTheFieldsThenTheFamily) {
  const auto layout = [](const FieldTexts& changes) {
    return parsed(changes).rope;
  };
  const std::string minicpm3 = "\"minicpm3\"";
  EXPECT_EQ(layout({}), RopeLayout::kInterleaved);
  EXPECT_EQ(layout({{"rope_interleave", "true"}}), RopeLayout::kInterleaved);
  EXPECT_EQ(layout({{"rope_interleave", "false"}}), RopeLayout::kHalfSplit);
  EXPECT_EQ(layout({{"model_type", minicpm3}}), RopeLayout::kHalfSplit);
  EXPECT_EQ(
      layout({{"model_type", minicpm3}, {"rope_interleave", "true"}}),
      RopeLayout::kInterleaved);
  EXPECT_EQ(layout({{"mla_use_nope", "false"}}), RopeLayout::kInterleaved);
  EXPECT_EQ(
      layout({{"mla_use_nope", "true"}, {"rope_interleave", "true"}}),
      RopeLayout::kNone);
  expect_contains(
      mistake({{"rope_interleave", "\"yes\""}}),
      "rope_interleave must be true or false (got \"yes\")");
}

TEST(RopeConfig, WithoutRotationNothingElseIsNeeded) {
  FieldTexts changes = yarn_with({{"mscale_all_dim", "1.0"}});
  changes["mla_use_nope"] = "true";
  changes["rope_theta"] = "null";
  const MlaConfig config = parsed(changes);
  EXPECT_FALSE(config.yarn);
  EXPECT_EQ(config.unsupported, Reasons{});
}

// ---- theta ------------------------------------------------------------------

TEST(RopeConfig, ThetaIsRead) {
  EXPECT_EQ(parsed({{"rope_theta", "5e4"}}).rope_theta, 50000);
}

TEST(RopeConfig, OnlyDeepSeekMayLeaveThetaOut) {
  for (const char* missing : {"", "null"}) {
    const FieldTexts changes{{"rope_theta", missing}};
    expect_contains(
        mistake(changes), "test-model: rope_theta must be a number above 1 (");
    FieldTexts deepseek = changes;
    deepseek["model_type"] = "\"deepseek_v3\"";
    EXPECT_EQ(parsed(deepseek).rope_theta, 10000);
    EXPECT_EQ(unsupported(deepseek), Reasons{});
  }
}

TEST(RopeConfig, UncheckedThetaMayBeMissing) {
  EXPECT_EQ(
      unsupported(
          {{"rope_theta", "null"},
           {"laga", R"({"unchecked": ["rope_theta"]})"}}),
      Reasons{"rope_theta: not checked"});
}

TEST(RopeConfig, ThetaMustBeAbove1) {
  for (const char* bad : {"1", "0", "-10000"}) {
    expect_contains(
        mistake({{"rope_theta", bad}}),
        "test-model: rope_theta must be above 1 (got " + std::string(bad));
  }
  expect_contains(
      mistake({{"rope_theta", "\"1e4\""}}),
      "test-model: rope_theta must be a number (got \"1e4\")");
  expect_contains(
      mistake(
          {{"rope_theta", ""}, {"rope_parameters", R"({"rope_theta": 0})"}}),
      "test-model: rope_parameters.rope_theta must be above 1 (got 0)");
}

// ---- both spellings ---------------------------------------------------------

TEST(RopeConfig, BothSpellingsGiveEqualConfigs) {
  const std::string yarn = R"("factor": 40, "beta_fast": 16, "beta_slow": 2,
      "original_max_position_embeddings": 2048, "mscale": 1.0,
      "mscale_all_dim": 0.707, "truncate": false)";
  const MlaConfig old = parsed(
      {{"rope_theta", "50000"},
       {"rope_scaling", R"({"type": "yarn", )" + yarn + "}"}});
  const Yarn expected{
      .factor = 40,
      .original_max_position_embeddings = 2048,
      .beta_fast = 16,
      .beta_slow = 2,
      .mscale = 1.0,
      .mscale_all_dim = 0.707,
      .attention_factor = {},
      .truncate = false};
  EXPECT_EQ(old.yarn, expected);
  EXPECT_EQ(old.rope_theta, 50000);

  const std::string parameters =
      R"({"rope_type": "yarn", "rope_theta": 50000.0, )" + yarn + "}";
  EXPECT_EQ(parsed({{"rope_theta", ""}, {"rope_parameters", parameters}}), old);
  EXPECT_EQ(
      parsed(
          {{"rope_theta", "50000"},
           {"rope_scaling",
            R"({"type": "yarn", "rope_type": "yarn", )" + yarn + "}"}}),
      old);
  // Both at once, as a file converted by transformers 5 may have them.
  EXPECT_EQ(
      parsed(
          {{"rope_theta", "50000"},
           {"rope_scaling", R"({"type": "yarn", )" + yarn + "}"},
           {"rope_parameters", parameters}}),
      old);
}

TEST(RopeConfig, SpellingsThatDisagreeAreAMistake) {
  FieldTexts changes = yarn_with({});
  changes["rope_parameters"] = R"({"rope_type": "yarn", "factor": 32})";
  expect_contains(
      mistake(changes), "factor is given twice and differs (40 and 32)");
  expect_contains(
      mistake({{"rope_parameters", R"({"rope_theta": 50000})"}}),
      "rope_theta is given twice and differs (50000 and 10000)");
  expect_contains(
      mistake(yarn_with({{"rope_type", "\"linear\""}})),
      "rope_type is given twice and differs (\"linear\" and \"yarn\")");
}

TEST(RopeConfig, DefaultTypeScalesNothing) {
  for (const char* scaling :
       {"",
        "null",
        "{}",
        R"({"type": null})",
        R"({"type": "default"})",
        R"({"rope_type": "default", "rope_theta": 10000})"}) {
    const MlaConfig config = parsed({{"rope_scaling", scaling}});
    EXPECT_FALSE(config.yarn) << scaling;
    EXPECT_EQ(config.unsupported, Reasons{}) << scaling;
  }
}

TEST(RopeConfig, DeepseekYarnIsYarn) {
  EXPECT_EQ(
      parsed(yarn_with({{"type", "\"deepseek_yarn\""}})),
      parsed(yarn_with({})));
}

TEST(RopeConfig, OtherTypesAreRefusedByName) {
  for (const std::string type :
       {"linear", "dynamic", "llama3", "longrope", "su"}) {
    EXPECT_EQ(
        unsupported({{"rope_scaling", R"({"type": ")" + type + R"("})"}}),
        Reasons{
            "rope_scaling: type '" + type + "' is not implemented, yarn is"});
  }
}

TEST(RopeConfig, ParametersOfKindsOfLayerAreRefusedByName) {
  EXPECT_EQ(
      unsupported(
          {{"rope_theta", ""},
           {"rope_parameters",
            R"({"full_attention": {"rope_theta": 1e6},
                "sliding_attention": {"rope_theta": 1e4}})"}}),
      Reasons{"rope_parameters: those of kinds of layer are not read"});
}

// ---- YaRN -------------------------------------------------------------------

TEST(RopeConfig, YarnDefaultsAreHuggingFaces) {
  const Yarn expected{.factor = 40, .original_max_position_embeddings = 4096};
  EXPECT_EQ(expected.beta_fast, 32);
  EXPECT_EQ(expected.beta_slow, 1);
  EXPECT_EQ(yarn_of(yarn_with({})), expected);
  EXPECT_EQ(
      yarn_of(yarn_with(
          {{"beta_fast", "null"},
           {"beta_slow", "null"},
           {"mscale", "null"},
           {"mscale_all_dim", "0"},
           {"attention_factor", "null"},
           {"truncate", "null"}})),
      expected);
}

TEST(RopeConfig, ZeroMscaleIsNotSet) {
  const Yarn yarn = yarn_of(yarn_with({{"mscale", "0.0"}}));
  EXPECT_FALSE(yarn.mscale);
  EXPECT_FALSE(yarn.mscale_all_dim);
}

TEST(RopeConfig, AttentionFactorIsRead) {
  EXPECT_EQ(
      yarn_of(yarn_with({{"attention_factor", "1.25"}})).attention_factor,
      1.25);
}

TEST(RopeConfig, OriginalLengthFallsBackToTheModels) {
  FieldTexts changes = yarn_with({{"original_max_position_embeddings", ""}});
  expect_contains(
      mistake(changes),
      "rope_scaling.original_max_position_embeddings must be a positive "
      "integer, or max_position_embeddings given (missing)");
  changes["max_position_embeddings"] = "8192";
  EXPECT_EQ(yarn_of(changes).original_max_position_embeddings, 8192);
  changes["original_max_position_embeddings"] = "2048"; // beside, not inside
  EXPECT_EQ(yarn_of(changes).original_max_position_embeddings, 2048);
}

TEST(RopeConfig, FactorMayFollowFromBothLengths) {
  FieldTexts changes = yarn_with({{"factor", "null"}});
  expect_contains(
      mistake(changes),
      "rope_scaling.factor must be a number above 0 (missing)");
  changes["max_position_embeddings"] = "163840";
  EXPECT_EQ(yarn_of(changes).factor, 40);
}

TEST(RopeConfig, BadYarnFieldsAreNamed) {
  const struct {
    const char *field, *value, *must;
  } cases[] = {
      {"factor", "0", "must be above 0"},
      {"factor", "-40", "must be above 0"},
      {"factor", "\"40\"", "must be a number"},
      {"original_max_position_embeddings", "-1", "must be a positive integer"},
      {"original_max_position_embeddings", "1.5", "must be a positive integer"},
      {"original_max_position_embeddings",
       "1e30",
       "must be at most 2147483647"},
      {"beta_fast", "0", "must be above 0"},
      {"beta_fast", "0.5", "must be at least beta_slow, which is 1"},
      {"beta_slow", "-1", "must be above 0"},
      {"mscale", "-1", "must be a number from 0 up"},
      {"mscale_all_dim", "true", "must be a number"},
      {"attention_factor", "0", "must be above 0"},
      {"truncate", "0", "must be true or false"},
  };
  for (const auto& test : cases) {
    const std::string message = mistake(yarn_with({{test.field, test.value}}));
    expect_contains(
        message,
        std::string("[parse_config] test-model: rope_scaling.") + test.field +
            " " + test.must);
    expect_contains(message, "(got ");
  }
}

TEST(RopeConfig, MessagesNameTheSpellingUsed) {
  expect_contains(
      mistake({{"rope_parameters", R"({"rope_type": "yarn", "factor": -1,
              "original_max_position_embeddings": 4096})"}}),
      "rope_parameters.factor must be above 0 (got -1)");
}

TEST(RopeConfig, FactorWithoutATypeIsAMistake) {
  expect_contains(
      mistake(yarn_with({{"type", ""}})),
      "rope_scaling.rope_type must be \"yarn\" or \"default\" where a factor "
      "is given (missing)");
}

TEST(RopeConfig, ScalingMustBeAnObjectAndItsTypeAString) {
  expect_contains(
      mistake({{"rope_scaling", "\"yarn\""}}),
      "rope_scaling must be an object (got \"yarn\")");
  expect_contains(
      mistake({{"rope_parameters", "40"}}),
      "rope_parameters must be an object (got 40)");
  expect_contains(
      mistake({{"rope_scaling", R"({"type": 3})"}}),
      "rope_scaling.rope_type must be a string (got 3)");
}

TEST(RopeConfig, UnknownYarnFieldsAreRefusedByName) {
  EXPECT_EQ(
      unsupported(yarn_with({{"attn_factor", "2"}, {"extra", "null"}})),
      Reasons{"rope_scaling.attn_factor: not a field of YaRN here"});
}

// ---- not implemented --------------------------------------------------------

TEST(RopeConfig, RotatingSomeOfTheColumnsIsRefused) {
  EXPECT_EQ(unsupported({{"partial_rotary_factor", "1.0"}}), Reasons{});
  const Reasons refused{
      "partial_rotary_factor: 0.5 would rotate only some of the "
      "qk_rope_head_dim columns"};
  EXPECT_EQ(unsupported({{"partial_rotary_factor", "0.5"}}), refused);
  EXPECT_EQ(
      unsupported({{"rope_scaling", R"({"partial_rotary_factor": 0.5})"}}),
      refused);
  // 8 of the head's 24 + 8 columns are the rotary ones, unless head_dim says
  // that the factor is of another width.
  EXPECT_EQ(unsupported({{"partial_rotary_factor", "0.25"}}), Reasons{});
  EXPECT_EQ(
      unsupported({{"partial_rotary_factor", "0.5"}, {"head_dim", "16"}}),
      Reasons{});
  EXPECT_EQ(
      unsupported({{"partial_rotary_factor", "0.5"}, {"head_dim", "8"}}),
      refused);
}

TEST(RopeConfig, QueriesScaledByPositionAreRefused) {
  const Reasons refused{
      "llama_4_scaling_beta: queries scaled by their position are not "
      "implemented"};
  EXPECT_EQ(unsupported(yarn_with({{"llama_4_scaling_beta", "0.1"}})), refused);
  EXPECT_EQ(unsupported(yarn_with({{"llama_4_scaling_beta", "0"}})), Reasons{});
  EXPECT_EQ(unsupported({{"model_type", "\"mistral4\""}}), refused);
  EXPECT_EQ(
      unsupported(
          {{"mla_use_nope", "true"},
           {"rope_parameters", R"({"llama_4_scaling_beta": 0.1})"}}),
      refused);
}

} // namespace
} // namespace laga
