// The document and its sizes.
#include "laga/core/config.h"

#include <gtest/gtest.h>

#include "tests/core/config_text.h"

namespace laga {
namespace {

using Reasons = std::vector<std::string>;

TEST(ParseConfig, ReadsEverySize) {
  const MlaConfig config = parsed({});
  EXPECT_EQ(config.name, "test-model");
  EXPECT_EQ(config.hidden_size, 200);
  EXPECT_EQ(config.num_heads, 5);
  EXPECT_EQ(config.q_lora_rank, 72);
  EXPECT_EQ(config.kv_lora_rank, 40);
  EXPECT_EQ(config.qk_nope_head_dim, 24);
  EXPECT_EQ(config.qk_rope_head_dim, 8);
  EXPECT_EQ(config.v_head_dim, 28);
  EXPECT_EQ(config.qk_head_dim(), 32);
  EXPECT_FALSE(config.attention_bias);
  EXPECT_EQ(config.unsupported, Reasons{});
  EXPECT_NO_THROW(require_computable(config));
}

TEST(ParseConfig, NoQueryRankMeansNoQueryLatent) {
  for (const char* none : {"", "null", "0"}) {
    EXPECT_EQ(parsed({{"q_lora_rank", none}}).q_lora_rank, 0) << none;
  }
}

TEST(ParseConfig, WholeNumbersMayBeWrittenAsFloats) {
  EXPECT_EQ(parsed({{"hidden_size", "200.0"}}).hidden_size, 200);
}

TEST(ParseConfig, SizesMustBePositiveIntegers) {
  for (const char* field :
       {"hidden_size",
        "num_attention_heads",
        "kv_lora_rank",
        "qk_nope_head_dim",
        "qk_rope_head_dim",
        "v_head_dim"}) {
    for (const char* bad :
         {"-5", "0", "2.5", "\"512\"", "true", "-1e30", "0.5", "-0.5"}) {
      EXPECT_EQ(
          mistake({{field, bad}}),
          std::string("[parse_config] test-model: ") + field +
              " must be a positive integer (got " +
              (std::string(bad) == "-1e30" ? "-1e+30" : bad) + ")");
    }
    expect_contains(
        mistake({{field, "[512]"}}), "a positive integer (got an array)");
    expect_contains(
        mistake({{field, "{}"}}), "a positive integer (got an object)");
  }
}

TEST(ParseConfig, SizesHaveAnUpperBound) {
  for (const char* bad :
       {"1e30", "2147483648", "18446744073709551615", "1e308"}) {
    expect_contains(
        mistake({{"hidden_size", bad}}),
        "test-model: hidden_size must be at most 2147483647 (got ");
  }
}

TEST(ParseConfig, MissingSizesAreNamed) {
  for (const char* field :
       {"hidden_size",
        "num_attention_heads",
        "qk_nope_head_dim",
        "qk_rope_head_dim",
        "v_head_dim"}) {
    expect_contains(
        mistake({{field, ""}}),
        std::string(field) + " must be a positive integer (missing)");
    expect_contains(
        mistake({{field, "null"}}),
        std::string(field) + " must be a positive integer (got null)");
  }
}

TEST(ParseConfig, QueryRankMayNotBeNegativeOrAnotherType) {
  for (const char* bad : {"-1", "1.5", "\"none\"", "false"}) {
    expect_contains(
        mistake({{"q_lora_rank", bad}}),
        "q_lora_rank must be a positive integer, 0 or null (got " +
            std::string(bad) + ")");
  }
}

TEST(ParseConfig, RotaryHeadDimMustBeEven) {
  expect_contains(
      mistake({{"qk_rope_head_dim", "7"}}),
      "qk_rope_head_dim must be even: RoPE rotates pairs (got 7)");
}

TEST(ParseConfig, SizesWhoseProductsAreAbsurdAreRefused) {
  // Each one passes its own bound; kv_b_proj would have 2^31 * 2^31 * 40.
  expect_contains(
      mistake(
          {{"num_attention_heads", "2147483647"},
           {"v_head_dim", "2147483647"}}),
      "kv_b_proj.weight would have ");
  expect_contains(
      mistake(
          {{"num_attention_heads", "2147483647"},
           {"qk_nope_head_dim", "2147483647"},
           {"qk_rope_head_dim", "2147483646"}}),
      "q_b_proj.weight would have ");
  // The largest that pass: their parameters can be counted.
  const MlaConfig wide =
      parsed({{"hidden_size", "1048576"}, {"num_attention_heads", "1048576"}});
  for (const Parameter& parameter : parameters(wide)) {
    EXPECT_GT(parameter.numel(), 0) << parameter.name;
  }
}

TEST(ParseConfig, AModelWithoutMlaIsCalledThat) {
  for (const FieldTexts& changes :
       {FieldTexts{{"kv_lora_rank", ""}},
        FieldTexts{{"kv_lora_rank", "null"}},
        FieldTexts{{"use_mla", "false"}},
        FieldTexts{
            {"kv_lora_rank", ""}, {"text_config", R"({"hidden_size": 1})"}}}) {
    const std::string message = mistake(changes);
    expect_contains(message, "test-model: not an MLA");
    expect_contains(message, "kv_lora_rank");
  }
}

TEST(ParseConfig, NestedTextModelIsUsed) {
  const std::string text = config_text({{"hidden_size", "96"}});
  for (const char* field : {"text_config", "language_config"}) {
    const std::string outer = object_text(
        {{field, text},
         {"hidden_size", "1"}, // another tower's
         {"laga", R"({"latent_norm_eps": 1e-5})"}});
    const MlaConfig config = parse_config(outer, "multimodal");
    EXPECT_EQ(config.hidden_size, 96);
    EXPECT_EQ(config.latent_norm_eps, 1e-5);
  }
  // The top level wins where it is an MLA model itself.
  EXPECT_EQ(parsed({{"text_config", text}}).hidden_size, 200);
}

TEST(ParseConfig, MistakesInANestedTextModelNameTheNesting) {
  const std::string text = config_text({{"v_head_dim", "-1"}});
  expect_contains(
      message_of([&] {
        parse_config(object_text({{"text_config", text}}), "multimodal");
      }),
      "multimodal: text_config.v_head_dim must be a positive integer");
  expect_contains(
      mistake({{"kv_lora_rank", ""}, {"text_config", "[]"}}),
      "text_config must be an object (got an array)");
}

TEST(ParseConfig, MalformedJsonIsOneLineWithItsPosition) {
  const auto parse = [](const std::string& text) {
    return message_of([&] { parse_config(text, "test-model"); });
  };
  for (const std::string& text :
       {std::string("{\n\"hidden_size\": oops}"),
        std::string(""),
        std::string("{\"a\": 1e999}"),
        std::string("{\"a\": NaN}"),
        std::string("{\"a\": \"line\nbreak\"}"),
        std::string("{\"a\": \"\xff\"}"),
        "{\"" + std::string(5000, 'x'),
        config_text() + "}"}) {
    const std::string message = parse(text);
    expect_contains(message, "[parse_config] test-model: not valid JSON: ");
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    EXPECT_LT(message.size(), 300u);
  }
  expect_contains(
      parse("{\n\"hidden_size\": oops}"),
      "parse error at line 2, column 16: syntax error");
  expect_contains(parse("[1]"), "test-model: must be an object (got an array)");
  expect_contains(parse("3"), "test-model: must be an object (got 3)");
}

TEST(ParseConfig, DeeplyNestedValuesAreRefusedLikeAnyOther) {
  const std::string deep = std::string(200000, '[') + std::string(200000, ']');
  expect_contains(
      mistake({{"hidden_size", deep}}),
      "hidden_size must be a positive integer (got an array)");
}

TEST(ParseConfig, LongValuesAreCutInMessages) {
  EXPECT_LT(
      mistake({{"hidden_size", '"' + std::string(5000, 'x') + '"'}}).size(),
      200u);
}

TEST(ParseConfig, AttentionBiasIsATruthValue) {
  EXPECT_TRUE(parsed({{"attention_bias", "true"}}).attention_bias);
  EXPECT_FALSE(parsed({{"attention_bias", "null"}}).attention_bias);
  expect_contains(
      mistake({{"attention_bias", "1"}}),
      "attention_bias must be true or false (got 1)");
}

} // namespace
} // namespace laga
