#include "laga/core/config.h"

#include <gtest/gtest.h>

#include <utility>

#include "tests/core/message_of.h"

namespace laga {
namespace {

using Shape = std::vector<int64_t>;

std::vector<std::pair<std::string, Shape>> listed(const MlaConfig& config) {
  std::vector<std::pair<std::string, Shape>> list;
  for (const Parameter& parameter : parameters(config)) {
    list.emplace_back(parameter.name, parameter.shape);
  }
  return list;
}

int64_t total(const MlaConfig& config) {
  int64_t numbers = 0;
  for (const Parameter& parameter : parameters(config)) {
    numbers += parameter.numel();
  }
  return numbers;
}

// Every size is different, so that a swapped one shows.
MlaConfig odd_sizes() {
  MlaConfig config;
  config.hidden_size = 200;
  config.num_heads = 5;
  config.q_lora_rank = 72;
  config.kv_lora_rank = 40;
  config.qk_nope_head_dim = 24;
  config.qk_rope_head_dim = 8;
  config.v_head_dim = 28;
  return config;
}

TEST(Parameters, WithAQueryLatentAreHuggingFacesInItsOrder) {
  const std::vector<std::pair<std::string, Shape>> expected{
      {"q_a_proj.weight", {72, 200}},
      {"q_a_layernorm.weight", {72}},
      {"q_b_proj.weight", {160, 72}},
      {"kv_a_proj_with_mqa.weight", {48, 200}},
      {"kv_a_layernorm.weight", {40}},
      {"kv_b_proj.weight", {260, 40}},
      {"o_proj.weight", {200, 140}}};
  EXPECT_EQ(listed(odd_sizes()), expected);
}

TEST(Parameters, WithoutAQueryLatentHaveOneQueryProjection) {
  MlaConfig config = odd_sizes();
  config.q_lora_rank = 0;
  config.attention_bias = true; // never on q_proj
  const std::vector<std::pair<std::string, Shape>> expected{
      {"q_proj.weight", {160, 200}},
      {"kv_a_proj_with_mqa.weight", {48, 200}},
      {"kv_a_proj_with_mqa.bias", {48}},
      {"kv_a_layernorm.weight", {40}},
      {"kv_b_proj.weight", {260, 40}},
      {"o_proj.weight", {200, 140}},
      {"o_proj.bias", {200}}};
  EXPECT_EQ(listed(config), expected);
}

TEST(Parameters, BiasesFollowTheirWeights) {
  MlaConfig config = odd_sizes();
  config.attention_bias = true;
  const std::vector<std::pair<std::string, Shape>> expected{
      {"q_a_proj.weight", {72, 200}},
      {"q_a_proj.bias", {72}},
      {"q_a_layernorm.weight", {72}},
      {"q_b_proj.weight", {160, 72}},
      {"kv_a_proj_with_mqa.weight", {48, 200}},
      {"kv_a_proj_with_mqa.bias", {48}},
      {"kv_a_layernorm.weight", {40}},
      {"kv_b_proj.weight", {260, 40}},
      {"o_proj.weight", {200, 140}},
      {"o_proj.bias", {200}}};
  EXPECT_EQ(listed(config), expected);
}

TEST(Parameters, OfDeepSeekV3AreTheKnownNumber) {
  EXPECT_EQ(total(load_config("deepseek-v3")), 187107328);
}

TEST(Parameter, NumelIsTheProductOfTheShape) {
  EXPECT_EQ((Parameter{"w", {3, 4, 5}}.numel()), 60);
  EXPECT_EQ((Parameter{"w", {3, 0}}.numel()), 0);
  EXPECT_EQ((Parameter{"scalar", {}}.numel()), 1);
}

TEST(Parameter, NumelRefusesToOverflow) {
  const Parameter huge{"kv_b_proj.weight", {int64_t{1} << 62, 2}};
  expect_contains(
      message_of([&] { huge.numel(); }),
      "kv_b_proj.weight has more numbers than int64 can count");
}

} // namespace
} // namespace laga
