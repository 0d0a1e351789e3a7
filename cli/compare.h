// `laga compare`: the forms side by side on one layer.
#pragma once

#include "laga/measure/layer_run.h"

#include <cstdint>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace laga::cli {

struct CompareOptions {
  std::string model = "deepseek-v3";
  int64_t seq = 1024;
  int64_t batch = 1;
  int ranks = 4;
  Dtype dtype = Dtype::kBf16;
  std::string inner = "eager";
  std::vector<std::string> forms; // empty: all
  int repeat = 1;
  uint64_t seed = 0;
  double deadline_s = 300;
  bool causal = true;
  bool reference = true;
  std::string json;
};

/// One form's figures; results themselves are dropped once judged.
struct FormFigures {
  std::string form;
  PhaseSeconds seconds;
  MemoryBytes memory;              // rank 0's
  std::vector<Transfer> measured;  // rank 0's
  std::vector<Transfer> predicted; // for rank 0
  std::vector<NamedError> errors;  // empty without a reference
  std::string output_digest;
  std::string gradients_digest;
  std::vector<std::string> failures; // what a check found, on any rank
};

struct Comparison {
  CompareOptions options;
  MlaConfig config;
  std::vector<FormFigures> forms;
};

/// Above this relative error from the reference a result is called wrong. It
/// tells a missing term (1e-1 and more) from rounding; `laga verify` holds the
/// tight bounds.
double gross_error_limit(Dtype dtype);

/// Bytes of one phase, summed over its transfers.
struct PhaseBytes {
  int64_t sent = 0;
  int64_t payload = 0;
};
PhaseBytes bytes_in(const std::vector<Transfer>& transfers, Phase phase);

void print_table(const Comparison& comparison, std::FILE* stream);

/// The document of --json, schema 1.
nlohmann::ordered_json json_document(const Comparison& comparison);

} // namespace laga::cli
