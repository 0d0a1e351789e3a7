#include "laga/core/checkpoint.h"

#include <gtest/gtest.h>

#include "tests/core/message_of.h"
#include "tests/core/temp_folder.h"

namespace laga {
namespace {

constexpr const char* kIndex = "model.safetensors.index.json";

void write_tensors(
    const std::string& path, const std::vector<std::string>& names) {
  const float number = static_cast<float>(names.size());
  std::vector<TensorBytes> tensors;
  for (const std::string& name : names) {
    tensors.push_back({name, "F32", {1}, &number});
  }
  write_safetensors(path, tensors);
}

std::string index_text(const std::string& map) {
  return R"({"metadata": {"total_size": 8}, "weight_map": )" + map + "}";
}

std::string refused(const std::string& path) {
  return message_of([&] { Checkpoint{path}; });
}

TEST(Checkpoint, ShardsAreFoundThroughTheIndex) {
  const TempFolder folder;
  write_tensors(folder / "one.safetensors", {"a", "b"});
  write_tensors(folder / "two.safetensors", {"c"});
  write_text(
      folder / kIndex,
      index_text(R"({"a": "one.safetensors", "b": "one.safetensors",
                     "c": "two.safetensors"})"));
  for (const std::string& path : {folder.path(), folder / kIndex}) {
    Checkpoint checkpoint(path);
    EXPECT_EQ(checkpoint.names(), (std::vector<std::string>{"a", "b", "c"}));
    float number = 0;
    checkpoint.file_of("b").read("b", &number);
    EXPECT_EQ(number, 2);
    checkpoint.file_of("c").read("c", &number);
    EXPECT_EQ(number, 1);
    expect_contains(
        message_of([&] { checkpoint.file_of("d"); }), "d is missing");
  }
}

TEST(Checkpoint, AFolderWithOneFileNeedsNoIndex) {
  const TempFolder folder;
  expect_contains(refused(folder.path()), "0 files");
  write_tensors(folder / "layer.safetensors", {"a"});
  EXPECT_TRUE(Checkpoint(folder.path()).contains("a"));
  EXPECT_TRUE(Checkpoint(folder / "layer.safetensors").contains("a"));
  write_tensors(folder / "other.safetensors", {"a"});
  expect_contains(refused(folder.path()), "2 files");
}

TEST(Checkpoint, ADamagedIndexIsRefused) {
  const TempFolder folder;
  const auto with = [&](const std::string& text) {
    write_text(folder / kIndex, text);
    return refused(folder / kIndex);
  };
  expect_contains(with("{"), "not valid JSON");
  expect_contains(with("[]"), "weight_map must be an object");
  expect_contains(with("{}"), "weight_map must be an object");
  expect_contains(with(index_text("[]")), "weight_map must be an object");
  for (const char* file :
       {"1",
        "\"\"",
        "\"one.bin\"",
        "\"../one.safetensors\"",
        "\"/one.safetensors\"",
        "\"sub/one.safetensors\""}) {
    expect_contains(
        with(index_text(std::string(R"({"a": )") + file + "}")),
        "a: must lie in a file *.safetensors beside the index");
  }
  expect_contains(refused(folder / "absent.json"), "absent.json");
  expect_contains(refused(folder / "absent"), "cannot be opened");
}

TEST(Checkpoint, AMissingDamagedOrWrongShardIsNamedWithTheTensor) {
  const TempFolder folder;
  write_tensors(folder / "one.safetensors", {"b"});
  write_text(folder / "two.safetensors", "damaged");
  write_text(
      folder / kIndex,
      index_text(R"({"a": "one.safetensors", "c": "two.safetensors",
                     "d": "three.safetensors"})"));
  Checkpoint checkpoint(folder.path());
  for (const auto& place :
       {std::pair{"a", "one"}, {"c", "two"}, {"d", "three"}}) {
    const std::string message =
        message_of([&] { checkpoint.file_of(place.first); });
    expect_contains(message, std::string(place.second) + ".safetensors");
    expect_contains(message, std::string("should hold ") + place.first);
  }
}

// ---- layers -----------------------------------------------------------------

constexpr const char* kMark = "kv_a_proj_with_mqa.weight";

class LayerPrefix : public testing::Test {
 protected:
  std::string find(
      const std::vector<std::string>& prefixes, const std::string& layer = "") {
    std::vector<std::string> names;
    for (const std::string& prefix : prefixes)
      names.push_back(prefix + kMark);
    write_tensors(folder_ / "f.safetensors", names);
    return find_layer_prefix(Checkpoint(folder_.path()), layer);
  }

  std::string refused(
      const std::vector<std::string>& prefixes, const std::string& layer = "") {
    return message_of([&] { find(prefixes, layer); });
  }

  TempFolder folder_;
};

TEST_F(LayerPrefix, TheOnlyLayerNeedsNoChoice) {
  EXPECT_EQ(find({""}), "");
  EXPECT_EQ(find({"", "grad."}), ""); // a file with a layer's results
  EXPECT_EQ(find({"model.layers.3.self_attn."}), "model.layers.3.self_attn.");
}

TEST_F(LayerPrefix, ALayerIsChosenByNumberOrPrefix) {
  const std::vector<std::string> model{
      "model.layers.3.self_attn.",
      "model.layers.13.self_attn.",
      "model.layers.30.self_attn."};
  EXPECT_EQ(find(model, "3"), model[0]);
  EXPECT_EQ(find(model, "13"), model[1]);
  EXPECT_EQ(find(model, model[2]), model[2]);
  EXPECT_EQ(find(model, "model.layers.30.self_attn"), model[2]);
  const std::string message = refused(model);
  expect_contains(message, "several layers");
  expect_contains(
      message,
      R"("model.layers.3.self_attn.", "model.layers.13.self_attn.", )");
  expect_contains(refused(model, "4"), "no layer 4. There are: \"model");
  expect_contains(refused(model, "self_attn"), "no layer self_attn");
}

TEST_F(LayerPrefix, TwoAttentionsOfOneLayerAreToldApart) {
  const std::vector<std::string> model{
      "model.layers.0.self_attn.0.",
      "model.layers.0.self_attn.1.",
      "model.layers.1.self_attn.0."};
  expect_contains(refused(model, "0"), "\"model.layers.0.self_attn.1.\"");
  EXPECT_EQ(find(model, "1"), model[2]);
  EXPECT_EQ(find(model, model[1]), model[1]);
}

TEST_F(LayerPrefix, AModelOfManyLayersIsListedInBrief) {
  std::vector<std::string> model;
  for (int i = 0; i < 61; ++i) {
    model.push_back("layers." + std::to_string(i) + ".");
  }
  expect_contains(refused(model), "\"layers.5.\" and 55 more");
}

TEST_F(LayerPrefix, AFileWithoutAttentionIsRefused) {
  write_tensors(folder_ / "f.safetensors", {"x_kv_a_proj_with_mqa.weight"});
  expect_contains(
      message_of([&] { find_layer_prefix(Checkpoint(folder_.path())); }),
      "kv_a_proj_with_mqa.weight is missing");
}

} // namespace
} // namespace laga
