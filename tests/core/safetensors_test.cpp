#include "laga/core/safetensors.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <cstring>
#include <stdexcept>
#include <string_view>

#include "tests/core/message_of.h"
#include "tests/core/temp_folder.h"

namespace laga {
namespace {

using Names = std::set<std::string>;

std::string with_length(uint64_t length, const std::string& rest) {
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  return bytes + rest;
}

std::string file_of(const std::string& header, const std::string& data) {
  return with_length(header.size(), header + data);
}

/// What reading a file with these bytes says.
std::string refusal(const std::string& bytes) {
  const TempFolder folder;
  const std::string path = folder / "damaged.safetensors";
  write_text(path, bytes);
  const std::string message = message_of([&] { SafetensorsReader{path}; });
  expect_contains(message, path);
  return message;
}

std::string refusal(const std::string& header, size_t data_bytes) {
  return refusal(file_of(header, std::string(data_bytes, 'x')));
}

/// "a" F32 [2], "b" BF16 [3] and a "c" without numbers.
std::string small_file() {
  const TempFolder folder;
  const float a[] = {1.5F, -2};
  const uint16_t b[] = {1, 2, 3};
  write_safetensors(
      folder / "small",
      {{"b", "BF16", {3}, b}, {"a", "F32", {2}, a}, {"c", "F64", {0, 5}, {}}},
      {{"key", "value"}});
  return read_text(folder / "small");
}

TEST(Safetensors, RoundTripKeepsBitsShapesAndMetadata) {
  const TempFolder folder;
  const std::string path = folder / "all.safetensors";
  const uint16_t bf16[] = {0x7fc1, 0xff80, 0x8000}; // NaN, -infinity, -0
  const float fp32[] = {1.25F, -0.0F};
  const double fp64[] = {0.1};
  const int64_t i64[] = {INT64_MIN, -1, 0, INT64_MAX};
  const SafetensorsMetadata metadata{{"a", "{\"b\": 1}"}, {"\"\\\n", "é"}};
  write_safetensors(
      path,
      {{"bf16", "BF16", {3, 1}, bf16},
       {"fp32", "F32", {2}, fp32},
       {"scalar", "F64", {}, fp64},
       {"i64", "I64", {2, 2}, i64},
       {"none", "F32", {4, 0}, nullptr}},
      metadata);
  const SafetensorsReader file(path);
  EXPECT_EQ(file.metadata(), metadata);
  EXPECT_EQ(file.tensors().size(), 5U);
  EXPECT_EQ(to_string(file.at("bf16")), "BF16 [3, 1]");
  EXPECT_EQ(to_string(file.at("scalar")), "F64 []");
  EXPECT_EQ(to_string(file.at("none")), "F32 [4, 0]");
  const auto same = [&](const char* name, const void* bytes, int64_t count) {
    ASSERT_EQ(file.at(name).nbytes, count);
    std::string read(static_cast<size_t>(count), '\0');
    file.read(name, read.data());
    const std::string_view written(static_cast<const char*>(bytes), count);
    EXPECT_EQ(read, written) << name;
  };
  same("bf16", bf16, 6);
  same("fp32", fp32, 8);
  same("scalar", fp64, 8);
  same("i64", i64, 32);
  same("none", "", 0);
  expect_contains(message_of([&] { file.at("e"); }), "e is missing");
}

TEST(Safetensors, EveryTensorIsAligned) {
  for (size_t padding = 0; padding < 8; ++padding) {
    const TempFolder folder;
    const uint16_t b[] = {1, 2, 3};
    const double d[] = {4};
    write_safetensors(
        folder / "f",
        {{"b", "BF16", {3}, b}, {"d", "F64", {1}, d}},
        {{"pad", std::string(padding, '.')}});
    const SafetensorsReader file(folder / "f");
    EXPECT_EQ(file.at("d").begin % 8, 0);
    EXPECT_EQ(file.at("b").begin % 2, 0);
  }
}

TEST(Safetensors, NoTensorsAtAllIsAFile) {
  const TempFolder folder;
  write_safetensors(folder / "f", {});
  EXPECT_TRUE(SafetensorsReader(folder / "f").tensors().empty());
}

// ---- damage -----------------------------------------------------------------

TEST(Safetensors, TruncatedAnywhereIsRefused) {
  const std::string whole = small_file();
  const size_t data = whole.size() - 14; // a: 8 bytes, then b: 6
  for (size_t size = 0; size < whole.size(); ++size) {
    const std::string message = refusal(whole.substr(0, size));
    expect_contains(message, "truncated");
    if (size >= data) {
      expect_contains(message, size < data + 8 ? ": a ends at" : ": b ends at");
    }
  }
}

TEST(Safetensors, AnyFlippedBitOfTheHeaderIsRefusedOrHarmless) {
  const std::string whole = small_file();
  const TempFolder folder;
  const std::string path = folder / "flipped";
  int refused = 0;
  for (size_t byte = 0; byte < whole.size() - 14; ++byte) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string bytes = whole;
      bytes[byte] = static_cast<char>(bytes[byte] ^ (1 << bit));
      write_text(path, bytes);
      try {
        const SafetensorsReader file(path); // a name may have changed
        int64_t total = 0;
        for (const auto& [name, tensor] : file.tensors())
          total += tensor.nbytes;
        EXPECT_EQ(total, 14);
      } catch (const InvalidArgument&) {
        ++refused; // anything else fails the test
      }
    }
  }
  EXPECT_GT(refused, 1000);
}

TEST(Safetensors, ALengthThatCannotBeIsRefused) {
  const std::string rest = small_file().substr(8);
  for (const uint64_t length :
       {UINT64_MAX, UINT64_MAX - 7, uint64_t{1} << 63, uint64_t{100'000'001}}) {
    expect_contains(
        refusal(with_length(length, rest)), std::to_string(length) + " bytes");
  }
  expect_contains(
      refusal(with_length(100'000'000, rest)), "truncated: the header takes");
  expect_contains(refusal(with_length(0, rest)), "does not begin with {");
}

TEST(Safetensors, AHeaderThatIsNoObjectIsRefused) {
  expect_contains(refusal(R"( {"a": 1})", 0), "does not begin with {");
  expect_contains(refusal("[]", 0), "does not begin with {");
  expect_contains(refusal("{", 0), "not valid JSON");
  expect_contains(refusal("{} x", 0), "not valid JSON");
  expect_contains(refusal("{\"\xff\": 1}", 0), "not valid JSON");
  expect_contains(refusal(R"({"a": 1})", 0), "a: must be an object");
  expect_contains(
      refusal("{\"a\":" + std::string(100'000, '['), 0), "nested too deep");
}

struct Damage {
  const char* entry; // of the tensor "q"
  const char* message;
};

TEST(Safetensors, ADamagedEntryIsRefusedByName) {
  const Damage damages[] = {
      {R"("shape": [2], "data_offsets": [0, 8])", "dtype must be a string"},
      {R"("dtype": 4, "shape": [2], "data_offsets": [0, 8])",
       "dtype must be a string"},
      {R"("dtype": "F32", "data_offsets": [0, 8])", "shape must be a list"},
      {R"("dtype": "F32", "shape": 2, "data_offsets": [0, 8])",
       "shape must be a list"},
      {R"("dtype": "F32", "shape": [2])", "data_offsets must be a list"},
      {R"("dtype": "F33", "shape": [2], "data_offsets": [0, 8])",
       "unknown dtype F33"},
      {R"("dtype": "F4", "shape": [2], "data_offsets": [0, 8])",
       "unknown dtype F4"},
      {R"("dtype": "F32", "shape": [-2], "data_offsets": [0, 8])", "(got -2)"},
      {R"("dtype": "F32", "shape": [2.5], "data_offsets": [0, 8])",
       "(got 2.5)"},
      {R"("dtype": "F32", "shape": ["2"], "data_offsets": [0, 8])",
       "(got \"2\")"},
      {R"("dtype": "F32", "shape": [3], "data_offsets": [0, 8])",
       "F32 [3] takes 12 bytes, but data_offsets span 8"},
      {R"("dtype": "BF16", "shape": [2], "data_offsets": [0, 8])",
       "BF16 [2] takes 4 bytes, but data_offsets span 8"},
      {R"("dtype": "F32", "shape": [], "data_offsets": [0, 8])",
       "F32 [] takes 4 bytes"},
      {R"("dtype": "F32", "shape": [2], "data_offsets": [8, 0])",
       "begin <= end"},
      {R"("dtype": "F32", "shape": [2], "data_offsets": [0, 8, 8])",
       "[begin, end]"},
      {R"("dtype": "F32", "shape": [2], "data_offsets": [-8, 0])", "(got -8)"},
      {R"("dtype": "F32", "shape": [2], "data_offsets": [8, 16])",
       "leaves a gap after the header"},
      {R"("dtype": "F32", "shape": [3], "data_offsets": [0, 12])",
       "ends at byte 12 of the data, but the file has 8"},
      {R"("dtype": "F32", "shape": [1], "data_offsets": [0, 4])",
       "4 bytes too many follow q"},
      {R"("dtype": "F32", "shape": [1], "shape": [2], "data_offsets": [0, 8])",
       "shape is there twice"},
      // Products and sums that would wrap around to something harmless.
      {R"("dtype": "F32", "shape": [4611686018427387904, 4],
          "data_offsets": [0, 0])",
       "more bytes than 2^63"},
      {R"("dtype": "F32", "shape": [4611686018427387904],
          "data_offsets": [0, 0])",
       "more bytes than 2^63"},
      {R"("dtype": "U8", "shape": [9223372036854775808],
          "data_offsets": [0, 8])",
       "below 2^63"},
      {R"("dtype": "U8", "shape": [18446744073709551624],
          "data_offsets": [0, 8])",
       "below 2^63"},
      {R"("dtype": "U8", "shape": [9223372036854775807],
          "data_offsets": [0, 9223372036854775807])",
       "ends at byte 9223372036854775807"},
      {R"("dtype": "F32", "shape": [2],
          "data_offsets": [9223372036854775799, 9223372036854775807])",
       "leaves a gap"},
      {R"("dtype": "F32", "shape": [2],
          "data_offsets": [18446744073709551608, 0])",
       "below 2^63"},
  };
  for (const Damage& damage : damages) {
    const std::string message =
        refusal(std::string(R"({"q": {)") + damage.entry + "}}", 8);
    expect_contains(message, "q");
    expect_contains(message, damage.message);
  }
}

TEST(Safetensors, TensorsThatDoNotFillTheFileAreRefusedByName) {
  const auto two = [](const char* first, const char* second) {
    return refusal(
        std::string(R"({"a": {"dtype": "U8", "shape": [4], "data_offsets": )") +
            first +
            R"(}, "b": {"dtype": "U8", "shape": [4], "data_offsets": )" +
            second + "}}",
        8);
  };
  expect_contains(two("[0, 4]", "[0, 4]"), "b overlaps a (begins at 0");
  expect_contains(two("[0, 4]", "[3, 7]"), "b overlaps a (begins at 3");
  expect_contains(two("[0, 4]", "[5, 9]"), "b leaves a gap after a");
  expect_contains(two("[4, 8]", "[1, 5]"), "b leaves a gap after the header");
}

TEST(Safetensors, DuplicateNamesAreRefused) {
  expect_contains(
      refusal(
          R"({"a": {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]},
              "a": {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]}})",
          4),
      "a is there twice");
}

TEST(Safetensors, MetadataIsTextOnly) {
  expect_contains(
      refusal(R"({"__metadata__": {"a": 1}})", 0), "a must be a string");
  expect_contains(refusal(R"({"__metadata__": "a"})", 0), "must be an object");
}

TEST(Safetensors, WhatIsNoFileIsRefused) {
  const TempFolder folder;
  for (const std::string& path : {folder.path(), folder / "absent"}) {
    expect_contains(message_of([&] { SafetensorsReader{path}; }), path);
  }
}

TEST(Safetensors, AFileThatShrinksWhileOpenIsRefusedByName) {
  const TempFolder folder;
  const std::string path = folder / "shrinking";
  write_text(path, small_file());
  const SafetensorsReader file(path);
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 1);
  uint16_t b[3];
  expect_contains(message_of([&] { file.read("b", b); }), ": b is truncated");
}

// ---- writing ----------------------------------------------------------------

TEST(Safetensors, WhatCannotBeReadBackIsNotWritten) {
  const TempFolder folder;
  const float a[] = {1};
  const auto refused = [&](const std::vector<TensorBytes>& tensors) {
    return message_of([&] { write_safetensors(folder / "f", tensors); });
  };
  expect_contains(refused({{"a", "F32", {1}, a}, {"a", "F32", {1}, a}}), "a");
  expect_contains(refused({{"__metadata__", "F32", {1}, a}}), "__metadata__");
  expect_contains(refused({{"a", "F16", {1}, a}}), "a: dtype F16");
  expect_contains(refused({{"a", "F32", {-1}, a}}), "-1 vs 0");
  expect_contains(refused({{"a", "F32", {1LL << 62}, a}}), "2^63");
  expect_contains(refused({{"\xff", "F32", {1}, a}}), "UTF-8");
  EXPECT_EQ(folder.names(), Names{});
  expect_contains(
      message_of([&] { write_safetensors(folder / "no/f", {}); }),
      "cannot write");
}

TEST(Safetensors, AFailedWriteLeavesTheOldFileAndNothingElse) {
  const TempFolder folder;
  const std::string path = folder / "f";
  const std::vector<float> numbers(1 << 16, 1.0F);
  write_text(path, "old");
  // Past this size the disk is full, as far as this process can tell.
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small{4096, before.rlim_max};
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  EXPECT_THROW(
      write_safetensors(path, {{"a", "F32", {1 << 16}, numbers.data()}}),
      std::runtime_error);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(read_text(path), "old");
  EXPECT_EQ(folder.names(), Names{"f"});
  write_safetensors(path, {{"a", "F32", {1 << 16}, numbers.data()}});
  EXPECT_EQ(SafetensorsReader(path).at("a").nbytes, 4 << 16);
  EXPECT_EQ(folder.names(), Names{"f"});
}

TEST(Safetensors, AFolderOfThatNameIsNotReplaced) {
  const TempFolder folder;
  std::filesystem::create_directories(folder / "f/g");
  EXPECT_THROW(write_safetensors(folder / "f", {}), std::runtime_error);
  EXPECT_EQ(folder.names(), Names{"f"});
}

} // namespace
} // namespace laga
