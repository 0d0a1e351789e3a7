#include "laga/plan/system.h"

#include "laga/core/check.h"

#include <gtest/gtest.h>

namespace laga {
namespace {

TEST(System, PresetsAreReadable) {
  for (const std::string& name : system_names()) {
    const System system = load_system(name);
    EXPECT_EQ(system.name, name);
    EXPECT_FALSE(system.description.empty()) << name;
    EXPECT_EQ(system.sources.size(), 6U) << name;
    EXPECT_GT(system.gemm_seconds(1e12, Dtype::kBf16, 1), 0) << name;
  }
}

TEST(Curve, IsStraightOnLogarithmicScalesAndConstantBeyond) {
  const Curve curve{{{1, 10}, {100, 1000}}};
  EXPECT_DOUBLE_EQ(curve.at(0.1), 10);
  EXPECT_NEAR(curve.at(10), 100, 1e-9);
  EXPECT_DOUBLE_EQ(curve.at(1e6), 1000);
}

TEST(System, TakesTheSlowerOfBothLinks) {
  System system = load_system("h100-ib");
  system.within_node["any"] = {1, 0, {{{1, 100}}}};
  system.between_nodes["any"] = {2, 0, {{{1, 10}}}};
  const Transfer within{
      Phase::kForward, "q", "all_to_all", "world", 1000000, 0, 0};
  EXPECT_NEAR(system.seconds(within, 8), 1e-6 + 1e-5, 1e-12);
  Transfer across = within;
  across.bytes_sent_across_nodes = 500000;
  EXPECT_NEAR(system.seconds(across, 16), 2e-6 + 5e-5, 1e-12);
  system.ranks_share_rates = true; // eight ranks through one link
  EXPECT_NEAR(system.seconds(across, 16), 2e-6 + 8 * 5e-5, 1e-12);
}

constexpr const char* kGood = R"({
  "ranks_per_node": 8, "memory_gb": 80, "memory_gb_per_s": 1000,
  "within_node": {"any": {"gb_per_s": 100}},
  "between_nodes": {"any": {"gb_per_s": [[1e6, 5], [1e8, 10]]}},
  "gemm_tflop_per_s": {"bf16": 100},
  "attention_tflop_per_s": {"bf16": {"head_forward": 1, "head_backward": 1,
    "latent_forward": 1, "latent_backward": 1}},
  "sources": {"memory_gb": "a", "memory_gb_per_s": "a", "within_node": "a",
    "between_nodes": "a", "gemm_tflop_per_s": "a",
    "attention_tflop_per_s": "a"}})";

std::string message_for(const std::string& from, const std::string& to) {
  std::string text = kGood;
  const size_t at = text.find(from);
  if (at == std::string::npos) return "not in the text: " + from;
  text.replace(at, from.size(), to);
  try {
    parse_system(text, "mine");
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "accepted";
}

TEST(System, MessagesNameTheField) {
  EXPECT_EQ(message_for("", ""), "accepted");
  const auto expect = [](const char* from, const char* to, const char* part) {
    const std::string message = message_for(from, to);
    EXPECT_NE(message.find(part), std::string::npos) << message;
    EXPECT_NE(message.find("[load_system] mine: "), std::string::npos)
        << message;
  };
  expect("\"gb_per_s\": 100", "\"gb_per_s\": -100", "within_node.any.gb_per_s");
  expect("[1e8, 10]", "[1e5, 10]", "between_nodes.any.gb_per_s");
  expect("\"memory_gb\": 80", "\"memory_gb\": 0", "memory_gb");
  expect("\"ranks_per_node\": 8", "\"ranks_per_node\": 0", "ranks_per_node");
  expect("\"ranks_per_node\": 8", "\"ranks_per_node\": 1e30", "ranks_per_node");
  expect("\"bf16\": 100", "\"fp8\": 100", "fp8");
  expect("\"any\": {\"gb_per_s\": 100}", "", "within_node.any");
  expect("\"any\": {\"gb_per_s\": 100}", "\"bcast\": {}", "bcast");
  expect("\"memory_gb\": \"a\"", "\"memory_gb\": 5", "sources.memory_gb");
  expect("\"latent_backward\": 1", "\"x\": 1", "latent_backward");
  expect("\"memory_gb\": 80", "\"memory_gb\" 80", "not valid JSON");
}

TEST(System, AnUnknownNameListsThePresets) {
  try {
    load_system("h900");
    FAIL();
  } catch (const InvalidArgument& error) {
    EXPECT_NE(std::string(error.what()).find("h100-ib"), std::string::npos);
  }
}

} // namespace
} // namespace laga
