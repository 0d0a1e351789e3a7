#include "laga/attention/weights_file.h"

#include "laga/attention/dtype.h"
#include "laga/measure/errors.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>

#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/attention/support.h"
#include "tests/core/message_of.h"
#include "tests/core/temp_folder.h"

namespace laga {
namespace {

constexpr Dtype kDtypes[] = {Dtype::kBf16, Dtype::kFp32, Dtype::kFp64};

MlaConfig config_with_bias() {
  MlaConfig config = small_config();
  config.attention_bias = true;
  return config;
}

NamedResults by_name(const Weights& weights) {
  NamedResults tensors;
  for (const auto& [name, tensor] : named(weights))
    tensors[name] = tensor;
  return tensors;
}

/// Any tensors at all into a file, fp32.
void write_fp32(const std::string& path, const NamedResults& tensors) {
  std::vector<TensorBytes> bytes;
  for (const auto& [name, tensor] : tensors) {
    bytes.push_back(
        {name, "F32", tensor.sizes().vec(), tensor.const_data_ptr()});
  }
  write_safetensors(path, bytes);
}

NamedResults with_prefix(
    const std::string& prefix, const NamedResults& tensors) {
  NamedResults prefixed;
  for (const auto& [name, tensor] : tensors)
    prefixed[prefix + name] = tensor;
  return prefixed;
}

TEST(WeightsFile, RoundTripKeepsEveryBit) {
  const TempFolder folder;
  MlaConfig no_q_lora = small_config();
  no_q_lora.q_lora_rank = 0;
  for (const MlaConfig& config :
       {small_config(), config_with_bias(), no_q_lora}) {
    for (const Dtype dtype : kDtypes) {
      const Weights weights = make_weights(config, dtype, 1);
      save_weights(folder / "w.safetensors", weights);
      const Weights loaded = load_weights(config, folder.path(), dtype);
      EXPECT_EQ(digest(by_name(loaded)), digest(by_name(weights)));
      EXPECT_EQ(named(loaded).size(), parameters(config).size());
      EXPECT_EQ(dtype_of(loaded.kv_b_proj), dtype);
    }
  }
}

TEST(WeightsFile, ConversionsRoundOnceAndWideningIsExact) {
  const TempFolder folder;
  const std::string path = folder / "w.safetensors";
  const MlaConfig config = small_config();
  for (const Dtype from : kDtypes) {
    const Weights weights = make_weights(config, from, 1);
    save_weights(path, weights);
    for (const Dtype to : kDtypes) {
      const auto loaded = by_name(load_weights(config, path, to));
      for (const auto& [name, tensor] : by_name(weights)) {
        EXPECT_TRUE(at::equal(loaded.at(name), tensor.to(torch_dtype(to))));
        if (size_of(to) >= size_of(from)) {
          EXPECT_EQ(absolute_error(loaded.at(name), tensor), 0) << name;
        }
      }
    }
  }
  // Halfway between two bf16 numbers, 1 and 1 + 2^-7: to the even one.
  NamedResults tensors = by_name(make_weights(config, Dtype::kFp32, 1));
  tensors["kv_a_layernorm.weight"] = at::full({40}, 1 + 0x1p-8, at::kFloat);
  write_fp32(path, tensors);
  const Weights rounded = load_weights(config, path, Dtype::kBf16);
  EXPECT_EQ(rounded.kv_a_layernorm[0].item<double>(), 1);
}

TEST(WeightsFile, OneLayerOfAShardedModel) {
  const TempFolder folder;
  const MlaConfig config = config_with_bias();
  NamedResults shards[2];
  std::string map;
  for (const int layer : {0, 1, 2}) {
    const NamedResults tensors = with_prefix(
        "model.layers." + std::to_string(layer) + ".self_attn.",
        by_name(make_weights(config, Dtype::kFp32, layer)));
    size_t count = 0; // a layer may lie in two files
    for (const auto& [name, tensor] : tensors) {
      const size_t shard = count++ % 2;
      shards[shard][name] = tensor;
      map += (map.empty() ? "{\"" : ", \"") + name + "\": \"" +
             std::to_string(shard) + ".safetensors\"";
    }
  }
  shards[0]["model.layers.1.self_attn.rotary_emb.inv_freq"] = at::ones({4});
  write_fp32(folder / "0.safetensors", shards[0]);
  write_fp32(folder / "1.safetensors", shards[1]);
  write_text(
      folder / "model.safetensors.index.json",
      "{\"weight_map\": " + map + "}}");
  for (const int layer : {0, 1, 2}) {
    EXPECT_EQ(
        digest(by_name(load_weights(
            config, folder.path(), Dtype::kFp32, std::to_string(layer)))),
        digest(by_name(make_weights(config, Dtype::kFp32, layer))));
  }
  const auto load = [&](const std::string& layer) {
    return message_of(
        [&] { load_weights(config, folder.path(), Dtype::kFp32, layer); });
  };
  expect_contains(load(""), "several layers");
  expect_contains(load("7"), "model.layers.2.self_attn.");
}

TEST(WeightsFile, WhatDoesNotFitTheConfigIsRefusedByName) {
  const TempFolder folder;
  const std::string path = folder / "w.safetensors";
  const MlaConfig config = small_config();
  const NamedResults right = by_name(make_weights(config, Dtype::kFp32, 1));
  const auto refusal = [&](const NamedResults& tensors) {
    write_fp32(path, tensors);
    const std::string message =
        message_of([&] { load_weights(config, path, Dtype::kFp32); });
    expect_contains(message, path);
    return message;
  };
  for (const auto& [name, tensor] : right) {
    NamedResults tensors = right;
    tensors.erase(name);
    expect_contains(refusal(tensors), name + " is missing");
    if (name == "kv_a_proj_with_mqa.weight") continue; // marks the layer
    tensors[name] = tensor.narrow(0, 0, tensor.size(0) - 1).contiguous();
    const std::string message = refusal(tensors);
    expect_contains(message, name + ": shape must be [");
    expect_contains(message, std::to_string(tensor.size(0) - 1));
    expect_contains(message, std::to_string(tensor.size(0)));
  }
  NamedResults transposed = right;
  transposed["o_proj.weight"] = right.at("o_proj.weight").t().contiguous();
  expect_contains(
      refusal(transposed),
      "o_proj.weight: shape must be [72, 160] (the file has [160, 72])");
  for (const char* extra :
       {"o_proj.bias", "q_proj.weight", "kv_b_proj.weight_scale_inv"}) {
    NamedResults tensors = right;
    tensors[extra] = at::ones({72});
    expect_contains(refusal(tensors), extra);
  }
}

TEST(WeightsFile, OtherDtypesAreRefusedByName) {
  const TempFolder folder;
  const std::string path = folder / "w.safetensors";
  const MlaConfig config = small_config();
  save_weights(path, make_weights(config, Dtype::kFp32, 1));
  const auto load = [&] {
    return message_of([&] { load_weights(config, path, Dtype::kFp32); });
  };
  // Same sizes, so the file stays whole.
  std::string bytes = read_text(path);
  const std::string entry = "\"kv_b_proj.weight\":{\"dtype\":\"";
  bytes.replace(bytes.find(entry) + entry.size(), 3, "I32");
  write_text(path, bytes);
  expect_contains(load(), "kv_b_proj.weight: dtype I32");

  Weights whole = make_weights(config, Dtype::kFp64, 1);
  whole.kv_b_proj = whole.kv_b_proj.to(at::kLong);
  save_weights(path, whole);
  expect_contains(load(), "kv_b_proj.weight: a weight cannot be of dtype I64");
  whole.kv_b_proj = whole.kv_b_proj.to(at::kHalf);
  expect_contains(
      message_of([&] { save_weights(path, whole); }), "kv_b_proj.weight");
}

TEST(WeightsFile, ATruncatedFileIsRefusedByName) {
  const TempFolder folder;
  const std::string path = folder / "w.safetensors";
  const MlaConfig config = small_config();
  save_weights(path, make_weights(config, Dtype::kFp32, 1));
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 1);
  expect_contains(
      message_of([&] { load_weights(config, path, Dtype::kFp32); }),
      "o_proj.weight ends at");
}

TEST(WeightsFile, NonContiguousWeightsAreWrittenAsTheyRead) {
  const TempFolder folder;
  const MlaConfig config = small_config();
  Weights weights = make_weights(config, Dtype::kFp32, 1);
  const at::Tensor kv_b = weights.kv_b_proj;
  weights.kv_b_proj = kv_b.t().contiguous().t();
  save_weights(folder / "w.safetensors", weights);
  EXPECT_TRUE(at::equal(
      load_weights(config, folder.path(), Dtype::kFp32).kv_b_proj, kv_b));
}

// tests/reference reads these files with Python's library and knows the
// numbers.
TEST(WeightsFile, IsWrittenForOthersToRead) {
  const TempFolder own;
  const char* folder = std::getenv("LAGA_TEST_FOLDER");
  const MlaConfig config = small_config();
  for (const Dtype dtype : kDtypes) {
    std::vector<NamedTensor> tensors;
    for (const Parameter& parameter : parameters(config)) {
      const at::Tensor numbers =
          at::arange(parameter.numel(), at::kDouble).remainder(251) - 125;
      tensors.push_back(
          {parameter.name,
           (numbers * 0.5).to(torch_dtype(dtype)).view(parameter.shape)});
    }
    const std::string path =
        std::string(folder == nullptr ? own.path() : folder) + "/" +
        (dtype == Dtype::kBf16   ? "bfloat16"
         : dtype == Dtype::kFp32 ? "float32"
                                 : "float64") +
        ".safetensors";
    save_weights(
        path,
        weights_from(config, tensors),
        {{"written by", "laga"}, {"quotes", "\"\\é"}});
    EXPECT_EQ(SafetensorsReader(path).tensors().size(), 7U);
  }
}

} // namespace
} // namespace laga
