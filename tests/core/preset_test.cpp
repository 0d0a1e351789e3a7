// The presets themselves, and how a model is found by name or path.
#include "laga/core/config.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tests/core/message_of.h"

namespace laga {
namespace {

namespace fs = std::filesystem;

constexpr RopeLayout kPairs = RopeLayout::kInterleaved;
constexpr RopeLayout kHalf = RopeLayout::kHalfSplit;
constexpr RopeLayout kNone = RopeLayout::kNone;

struct Expected {
  const char* name;
  int64_t hidden_size, num_heads, q_lora_rank, kv_lora_rank;
  int64_t qk_nope_head_dim, qk_rope_head_dim, v_head_dim;
  RopeLayout rope;
  double rope_theta;       // 0: not known
  double yarn_factor;      // 0: no YaRN
  double mscale;           // 0: not set; mscale_all_dim is the same
  const char* refused_for; // one "field:" of unsupported; "": computable
};

// Copied from the list of models the project started with, not from the files.
// clang-format off
constexpr Expected kExpected[] = {
    {"a.x-k1",               7168,  64, 1536, 512, 128, 64, 128, kPairs, 0,   0,   0,     "rope_theta: not checked"},
    {"deepseek-v2",          5120, 128, 1536, 512, 128, 64, 128, kPairs, 1e4, 40,  0.707, ""},
    {"deepseek-v2-lite",     2048,  16, 0,    512, 128, 64, 128, kPairs, 1e4, 40,  0.707, ""},
    {"deepseek-v3",          7168, 128, 1536, 512, 128, 64, 128, kPairs, 1e4, 40,  1,     ""},
    {"glm-4.7-flash",        2048,  20, 768,  512, 192, 64, 256, kPairs, 1e6, 0,   0,     ""},
    {"glm-5",                6144,  64, 2048, 512, 192, 64, 256, kPairs, 1e6, 0,   0,     "index_topk: a sparse indexer"},
    {"kimi-k2",              7168,  64, 1536, 512, 128, 64, 128, kPairs, 5e4, 32,  1,     ""},
    {"kimi-k2-thinking",     7168,  64, 1536, 512, 128, 64, 128, kPairs, 5e4, 64,  1,     ""},
    {"kimi-k3",              7168,  96, 1536, 512, 128, 64, 128, kNone,  0,   0,   0,     "mla_use_output_gate: an output gate"},
    {"kimi-linear-48b-a3b",  2304,  32, 0,    512, 128, 64, 128, kNone,  0,   0,   0,     ""},
    {"longcat-flash",        6144,  64, 1536, 512, 128, 64, 128, kPairs, 1e7, 0,   0,     "mla_scale_kv_lora: a scaled latent"},
    {"minicpm3-4b",          2560,  40, 768,  256, 64,  32, 64,  kHalf,  0,   0,   0,     "rope_scaling: not checked"},
    {"mistral-small-4-119b", 4096,  32, 1024, 256, 64,  64, 128, kPairs, 1e4, 128, 0,     "llama_4_scaling_beta: queries scaled by"},
    {"moonlight-16b-a3b",    2048,  16, 0,    512, 128, 64, 128, kPairs, 5e4, 0,   0,     ""},
    {"sarvam-mla-105b",      4096,  64, 0,    512, 128, 64, 128, kPairs, 0,   40,  1,     "rope_theta: not checked"},
    {"youtu-llm-2b",         2048,  16, 1536, 512, 128, 64, 128, kPairs, 0,   0,   0,     "rope_theta: not checked"},
};
// clang-format on

TEST(Presets, AreTheModelsOfTheListSorted) {
  std::vector<std::string> expected;
  for (const Expected& model : kExpected)
    expected.push_back(model.name);
  EXPECT_EQ(preset_names(), expected);
}

TEST(Presets, HaveTheListsSizes) {
  for (const Expected& model : kExpected) {
    SCOPED_TRACE(model.name);
    const MlaConfig config = load_config(model.name);
    EXPECT_EQ(config.name, model.name);
    EXPECT_EQ(config.hidden_size, model.hidden_size);
    EXPECT_EQ(config.num_heads, model.num_heads);
    EXPECT_EQ(config.q_lora_rank, model.q_lora_rank);
    EXPECT_EQ(config.kv_lora_rank, model.kv_lora_rank);
    EXPECT_EQ(config.qk_nope_head_dim, model.qk_nope_head_dim);
    EXPECT_EQ(config.qk_rope_head_dim, model.qk_rope_head_dim);
    EXPECT_EQ(config.v_head_dim, model.v_head_dim);
    EXPECT_FALSE(config.attention_bias);
    // Whatever rms_norm_eps says: several of these have 1e-5.
    EXPECT_EQ(config.latent_norm_eps, 1e-6);
    EXPECT_FALSE(config.softmax_scale);
  }
}

TEST(Presets, HaveTheListsRotaryEmbedding) {
  for (const Expected& model : kExpected) {
    SCOPED_TRACE(model.name);
    const MlaConfig config = load_config(model.name);
    EXPECT_EQ(config.rope, model.rope);
    if (model.rope_theta != 0) {
      EXPECT_EQ(config.rope_theta, model.rope_theta);
    }
    ASSERT_EQ(config.yarn.has_value(), model.yarn_factor != 0);
    if (!config.yarn) continue;
    EXPECT_EQ(config.yarn->factor, model.yarn_factor);
    EXPECT_EQ(
        config.yarn->original_max_position_embeddings,
        config.name == "mistral-small-4-119b" ? 8192 : 4096);
    EXPECT_EQ(
        config.yarn->beta_fast, config.name.starts_with("kimi-k2") ? 1 : 32);
    EXPECT_EQ(config.yarn->beta_slow, 1);
    EXPECT_EQ(config.yarn->mscale.value_or(0), model.mscale);
    EXPECT_EQ(config.yarn->mscale_all_dim.value_or(0), model.mscale);
    EXPECT_FALSE(config.yarn->attention_factor);
    EXPECT_TRUE(config.yarn->truncate);
  }
}

TEST(Presets, AreComputableOrRefusedByName) {
  for (const Expected& model : kExpected) {
    SCOPED_TRACE(model.name);
    const MlaConfig config = load_config(model.name);
    if (*model.refused_for == '\0') {
      EXPECT_NO_THROW(require_computable(config));
      continue;
    }
    const std::string message = message_of([&] { require_computable(config); });
    expect_contains(message, "[require_computable] " + config.name);
    expect_contains(message, model.refused_for);
    for (const std::string& reason : config.unsupported) {
      expect_contains(message, reason);
    }
  }
}

/// Sets LAGA_PRESETS to a fresh folder for as long as it lives.
class PresetFolder {
 public:
  explicit PresetFolder(const std::string& name)
      : path_(fs::path(testing::TempDir()) / name) {
    fs::remove_all(path_);
    fs::create_directories(path_);
    setenv("LAGA_PRESETS", path_.c_str(), 1);
  }
  ~PresetFolder() {
    unsetenv("LAGA_PRESETS");
    fs::remove_all(path_);
  }

  const fs::path& path() const {
    return path_;
  }

  fs::path write(const std::string& file, const std::string& text) const {
    fs::create_directories((path_ / file).parent_path());
    std::ofstream(path_ / file) << text;
    return path_ / file;
  }

 private:
  fs::path path_;
};

constexpr const char* kSmall = R"({"model_type": "deepseek_v3",
    "hidden_size": 64, "num_attention_heads": 2, "kv_lora_rank": 16,
    "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 8})";

TEST(LoadConfig, EnvironmentNamesAnotherPresetFolder) {
  const PresetFolder folder("laga_presets");
  folder.write("small.v1.json", kSmall);
  folder.write("README.md", "not a preset");
  EXPECT_EQ(preset_names(), std::vector<std::string>{"small.v1"});
  EXPECT_EQ(load_config("small.v1").hidden_size, 64);
  expect_contains(
      message_of([] { load_config("deepseek-v3"); }), "Presets: small.v1.");
}

TEST(LoadConfig, MissingPresetFolderSaysWhichAndWhatHelps) {
  const PresetFolder folder("laga_presets_gone");
  fs::remove_all(folder.path());
  const std::string message = message_of([] { load_config("deepseek-v3"); });
  expect_contains(message, folder.path().string());
  expect_contains(message, "LAGA_PRESETS");
}

TEST(LoadConfig, TakesAFileOrItsFolderAndNamesTheModel) {
  const PresetFolder folder("laga_model_paths");
  const fs::path file = folder.write("My-Model/config.json", kSmall);
  EXPECT_EQ(load_config(file.string()).name, "My-Model");
  EXPECT_EQ(load_config(file.parent_path().string()).name, "My-Model");
  EXPECT_EQ(load_config(file.parent_path().string() + "/").name, "My-Model");
  EXPECT_EQ(
      load_config(folder.write("other.json", kSmall).string()).name, "other");
}

TEST(LoadConfig, UnknownNameListsEveryPreset) {
  const std::string message = message_of([] { load_config("deepseek-v9"); });
  expect_contains(message, "[load_config] unknown model 'deepseek-v9'");
  for (const Expected& model : kExpected)
    expect_contains(message, model.name);
}

TEST(LoadConfig, UnreadablePathIsNamed) {
  // The second has no slash: .json alone makes a path of it.
  for (const char* path : {"./no/such/config.json", "no-such.json", "/"}) {
    const std::string message = message_of([&] { load_config(path); });
    expect_contains(message, "[load_config] " + std::string(path));
    expect_contains(message, "is not a file that can be read");
  }
}

TEST(LoadConfig, AMistakeInAFileNamesTheFile) {
  const PresetFolder folder("laga_broken");
  const fs::path file = folder.write("broken.json", "{");
  expect_contains(
      message_of([&] { load_config("broken"); }),
      "[parse_config] " + file.string() + ": not valid JSON: parse error at");
}

} // namespace
} // namespace laga
