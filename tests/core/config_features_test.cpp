// What is ours in a config.json, and what is not implemented.
#include "laga/core/config.h"

#include <gtest/gtest.h>

#include "tests/core/config_text.h"

namespace laga {
namespace {

using Reasons = std::vector<std::string>;

// ---- laga -------------------------------------------------------------------

TEST(ParseConfig, LatentNormEpsIsNotRmsNormEps) {
  EXPECT_EQ(parsed({{"rms_norm_eps", "1e-5"}}).latent_norm_eps, 1e-6);
  EXPECT_EQ(
      parsed({{"laga", R"({"latent_norm_eps": 1e-5})"}}).latent_norm_eps, 1e-5);
}

TEST(ParseConfig, SoftmaxScaleMayBeGiven) {
  EXPECT_FALSE(parsed({}).softmax_scale);
  EXPECT_EQ(
      parsed({{"laga", R"({"softmax_scale": 0.25})"}}).softmax_scale, 0.25);
}

TEST(ParseConfig, OwnFieldsAreChecked) {
  for (const char* field : {"latent_norm_eps", "softmax_scale"}) {
    for (const char* bad : {"0", "-1e-6"}) {
      expect_contains(
          mistake({{"laga", object_text({{field, bad}})}}),
          std::string("laga.") + field + " must be above 0 (got ");
    }
    expect_contains(
        mistake({{"laga", object_text({{field, "\"small\""}})}}),
        std::string("laga.") + field + " must be a number (got \"small\")");
  }
  expect_contains(
      mistake({{"laga", R"({"latent_eps": 1e-6})"}}),
      "laga.latent_eps is not known. Known: latent_norm_eps, notes");
  expect_contains(mistake({{"laga", "true"}}), "laga must be an object");
  for (const char* bad : {"\"rope_theta\"", "[1]"}) {
    expect_contains(
        mistake({{"laga", object_text({{"unchecked", bad}})}}),
        "laga.unchecked must be a list of field names (got ");
  }
  EXPECT_EQ(
      unsupported({{"laga", R"({"notes": {"any": ["thing"]}})"}}), Reasons{});
}

TEST(ParseConfig, UncheckedFieldsRefuseComputing) {
  EXPECT_EQ(
      unsupported({{"laga", R"({"unchecked": ["rope_theta", "eps"]})"}}),
      (Reasons{"rope_theta: not checked", "eps: not checked"}));
}

// ---- right, but not implemented ---------------------------------------------

struct Feature {
  FieldTexts changes;
  Reasons reasons;
};

TEST(ParseConfig, WhatIsNotImplementedIsNamed) {
  const std::string indexer = "index_topk: a sparse indexer is not implemented";
  const std::string gate = ": an output gate is not implemented";
  const std::string scaled = ": a scaled latent is not implemented";
  const std::string window =
      "sliding_window: a sliding window is not implemented";
  const Reasons both_scaled{
      "mla_scale_q_lora" + scaled, "mla_scale_kv_lora" + scaled};
  const Feature features[] = {
      {{{"index_topk", "2048"}}, {indexer}},
      {{{"index_n_heads", "32"}, {"index_head_dim", "128"}}, {indexer}},
      {{{"model_type", "\"glm_moe_dsa\""}}, {indexer}},
      {{{"model_type", "\"deepseek_v32\""}}, {indexer}},
      {{{"index_topk", "null"}}, {}},
      {{{"mla_use_output_gate", "true"}}, {"mla_use_output_gate" + gate}},
      {{{"attn_output_gate", "true"}}, {"attn_output_gate" + gate}},
      {{{"attention_output_gate", "1"}}, {"attention_output_gate" + gate}},
      {{{"use_output_gate", "true"}}, {"use_output_gate" + gate}},
      {{{"output_gate", "\"sigmoid\""}}, {"output_gate" + gate}},
      {{{"mla_use_output_gate", "false"}, {"output_gate", "\"\""}}, {}},
      {{{"mla_scale_q_lora", "true"}}, {"mla_scale_q_lora" + scaled}},
      {{{"mla_scale_kv_lora", "true"}}, {"mla_scale_kv_lora" + scaled}},
      {{{"model_type", "\"longcat_flash\""}}, both_scaled},
      {{{"model_type", "\"longcat_flash\""},
        {"mla_scale_q_lora", "false"},
        {"mla_scale_kv_lora", "false"}},
       {}},
      {{{"sliding_window", "4096"}}, {window}},
      {{{"sliding_window", "4096"}, {"use_sliding_window", "true"}}, {window}},
      {{{"sliding_window", "4096"}, {"use_sliding_window", "false"}}, {}},
      {{{"sliding_window", "null"}}, {}},
      {{{"attention_dropout", "0.1"}},
       {"attention_dropout: dropout is not implemented"}},
      {{{"attention_dropout", "0.0"}}, {}},
  };
  for (const Feature& feature : features) {
    EXPECT_EQ(unsupported(feature.changes), feature.reasons)
        << object_text(feature.changes);
  }
}

TEST(ParseConfig, ARefusedFieldIsNotAlsoCalledUnchecked) {
  EXPECT_EQ(
      unsupported(
          {{"model_type", "\"glm_moe_dsa\""},
           {"index_topk", "null"},
           {"laga", R"({"unchecked": ["index_topk", "index_n_heads"]})"}}),
      (Reasons{
          "index_topk: a sparse indexer is not implemented",
          "index_n_heads: not checked"}));
}

TEST(ParseConfig, FeatureFieldsOfTheWrongTypeAreMistakes) {
  expect_contains(
      mistake({{"attention_dropout", "\"none\""}}),
      "attention_dropout must be a number (got \"none\")");
  expect_contains(
      mistake({{"mla_scale_q_lora", "2"}}),
      "mla_scale_q_lora must be true or false (got 2)");
  expect_contains(
      mistake({{"model_type", "3"}}), "model_type must be a string (got 3)");
}

TEST(RequireComputable, NamesTheModelAndEveryReason) {
  MlaConfig config = parsed({});
  config.unsupported = {"rope_theta: not checked", "output_gate: no"};
  EXPECT_EQ(
      message_of([&] { require_computable(config); }),
      "[require_computable] test-model can be planned with but not computed "
      "with: rope_theta: not checked; output_gate: no");
}

} // namespace
} // namespace laga
