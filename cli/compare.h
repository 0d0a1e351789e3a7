// `laga compare`: the forms side by side on one layer.
#pragma once

#include "laga/measure/layer_run.h"
#include "laga/plan/tape.h"

#include <cstdint>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/engine.h"

namespace laga::cli {

/// One form with one inner attention.
struct FormRow {
  std::string form, inner;
};

struct CompareOptions {
  std::string model = "deepseek-v3";
  int64_t seq = 1024;
  int64_t batch = 1;
  Dtype dtype = Dtype::kBf16;
  std::string inner = "default"; // as typed
  std::vector<FormRow> rows;
  bool send_delta = false;
  int repeat = 1;
  uint64_t seed = 0;
  bool causal = true;
  bool reference = true;
  bool tape = false;
  std::string weights; // a safetensors file, its index or folder; "": drawn
  std::string layer;   // which of the file's; "": the only one
  EngineOptions engine;
  std::string json;
};

/// One form's figures, all judged.
struct FormFigures {
  std::string form, inner;
  PhaseSeconds seconds;
  MemoryBytes memory;              // rank 0's, or the ghost's
  std::vector<Transfer> measured;  // of the same rank
  std::vector<Transfer> predicted; // for the same rank
  MemoryTape tape;                 // predicted for every rank
  std::vector<NamedError> errors;  // empty without a reference
  std::string output_digest;       // empty without results
  std::string gradients_digest;
  std::vector<std::string> failures; // what a check found, on any rank
};

struct Comparison {
  CompareOptions options;
  std::string ranks_are; // "threads, 2 cores"
  int nodes;             // that the ranks sit on
  MlaConfig config;
  std::vector<FormFigures> forms;
};

/// Each of `forms` with those of `inner` ("default", "all" or names) that it
/// can use. Throws InvalidArgument where a form can use none of them.
std::vector<FormRow> rows_of(
    const std::vector<std::string>& forms, const std::string& inner);

/// Above this relative error from the reference a result is called wrong. It
/// tells a missing term (1e-1 and more) from rounding; `laga verify` holds the
/// tight bounds.
double gross_error_limit(Dtype dtype);

/// Judges one run: transfers against the prediction on every rank, equal
/// memory and equal weight gradients on all ranks, errors where there is a
/// reference. `threads` are those of a rank.
FormFigures judged(
    const LayerTask& task,
    LayerRun run,
    int threads,
    const std::optional<NamedResults>& reference);

/// Bytes of one phase, summed over its transfers.
struct PhaseBytes {
  int64_t sent = 0;
  int64_t across_nodes = 0;
  int64_t payload = 0;
};
PhaseBytes bytes_in(const std::vector<Transfer>& transfers, Phase phase);

void print_table(const Comparison& comparison, std::FILE* stream);

/// What is alive at the end of the forward and at the peak, and how far the
/// readings at the allocator are from it.
void print_tapes(const Comparison& comparison, std::FILE* stream);

/// The document of --json, schema 1.
nlohmann::ordered_json json_document(const Comparison& comparison);

} // namespace laga::cli
