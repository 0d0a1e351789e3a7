// `laga bench layer`: one whole layer on one rank, by every form and inner
// attention.
#pragma once

#include "laga/core/config.h"
#include "laga/core/dtype.h"
#include "laga/measure/layer_run.h"

#include <cstdint>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace laga::cli {

struct BenchLayerOptions {
  std::string model = "deepseek-v3";
  int64_t seq = 2048;
  int64_t batch = 1;
  Dtype dtype = Dtype::kBf16;
  int threads = 0;                 // 0: as many as torch would take
  std::vector<std::string> forms;  // names
  std::vector<std::string> inners; // names; a form takes those it can use
  int repeat = 5;
  int warmup = 1;
  uint64_t seed = 0;
  std::string json;
  std::string output; // a folder for inputs and results; "": nowhere
};

/// What one form with one inner attention took, run by run.
struct LayerRow {
  std::string form, inner;
  std::vector<double> forward_s, backward_s, sum_s;
  MemoryBytes memory; // of the last run; they are all alike

  std::string name() const {
    return form + " " + inner;
  }
};

struct SkippedRow {
  std::string form, inner, reason;
};

struct LayerBench {
  BenchLayerOptions options; // threads: as they were
  MlaConfig config;
  std::vector<LayerRow> rows; // at least one
  std::vector<SkippedRow> skipped;

  /// The row that ratios refer to: `explicit eager`, the plain one, or the
  /// first where that did not run.
  const LayerRow& baseline() const;
};

void print_table(const LayerBench& bench, std::FILE* stream);

/// The document of --json, schema 1.
nlohmann::ordered_json json_document(const LayerBench& bench);

} // namespace laga::cli
