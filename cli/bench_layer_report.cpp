#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "cli/bench.h"
#include "cli/bench_layer.h"
#include "cli/table.h"

namespace laga::cli {

namespace {

using Json = nlohmann::ordered_json;

double minimum(const std::vector<double>& values) {
  return *std::min_element(values.begin(), values.end());
}

double ratio(const LayerBench& bench, const LayerRow& row) {
  return median(row.sum_s) / median(bench.baseline().sum_s);
}

void print_header(const LayerBench& bench, std::FILE* stream) {
  const BenchLayerOptions& o = bench.options;
  fmt::print(
      stream,
      "{} attention   sequence {}  batch {}  one rank, {} thread{}  {}  causal "
      " seed {}\n",
      bench.config.name,
      o.seq,
      o.batch,
      o.threads,
      o.threads == 1 ? "" : "s",
      name_of(o.dtype),
      o.seed);
  fmt::print(
      stream,
      "{} run{} of each row, in turns; ratio: to the median sum of {}\n\n",
      o.repeat,
      o.repeat == 1 ? "" : "s",
      bench.baseline().name());
}

std::vector<std::string> cells(const LayerBench& bench, const LayerRow& row) {
  // What takes milliseconds has to show some digits.
  const int digits = minimum(bench.baseline().sum_s) < 1 ? 4 : 2;
  std::vector<std::string> cells{row.form, row.inner};
  for (const auto* seconds : {&row.forward_s, &row.backward_s, &row.sum_s}) {
    cells.push_back(fmt::format("{:.{}f}", median(*seconds), digits));
    cells.push_back(fmt::format("{:.{}f}", minimum(*seconds), digits));
  }
  cells.push_back(fmt::format("{:.2f}x", ratio(bench, row)));
  for (const int64_t bytes : {row.memory.saved, row.memory.peak}) {
    cells.push_back(
        fmt::format("{:.2f}", static_cast<double>(bytes) / (1 << 20)));
  }
  return cells;
}

Json seconds_json(const std::vector<double>& seconds) {
  return {{"median", median(seconds)}, {"minimum", minimum(seconds)}};
}

Json row_json(const LayerBench& bench, const LayerRow& row) {
  return {
      {"form", row.form},
      {"inner", row.inner},
      {"time_s",
       {{"forward", seconds_json(row.forward_s)},
        {"backward", seconds_json(row.backward_s)},
        {"sum", seconds_json(row.sum_s)}}},
      {"ratio", ratio(bench, row)},
      {"memory_bytes",
       {{"saved", row.memory.saved},
        {"peak", row.memory.peak},
        {"weights", row.memory.weights},
        {"weight_gradients", row.memory.weight_gradients}}}};
}

} // namespace

const LayerRow& LayerBench::baseline() const {
  for (const LayerRow& row : rows) {
    if (row.form == "explicit" && row.inner == "eager") return row;
  }
  return rows.front();
}

void print_table(const LayerBench& bench, std::FILE* stream) {
  print_header(bench, stream);
  Table table(
      {{"", "form", true},
       {"", "inner", true},
       {"forward, s", "median"},
       {"forward, s", "minimum"},
       {"backward, s", "median"},
       {"backward, s", "minimum"},
       {"sum, s", "median"},
       {"sum, s", "minimum"},
       {"sum, s", "ratio"},
       {"memory, MiB", "saved"},
       {"memory, MiB", "peak"}});
  for (const LayerRow& row : bench.rows) {
    table.add_row(cells(bench, row));
  }
  table.print(stream);
  fmt::print(
      stream,
      "\nMemory above weights ({:.2f} MiB) and weight gradients (as much): "
      "saved until the backward,\nand the peak over both.\n",
      static_cast<double>(bench.rows.front().memory.weights) / (1 << 20));
  for (const SkippedRow& row : bench.skipped) {
    fmt::print(stream, "Skipped: {} {} {}.\n", row.form, row.inner, row.reason);
  }
}

nlohmann::ordered_json json_document(const LayerBench& bench) {
  const BenchLayerOptions& o = bench.options;
  Json rows = Json::array(), skipped = Json::array();
  for (const LayerRow& row : bench.rows) {
    rows.push_back(row_json(bench, row));
  }
  for (const SkippedRow& row : bench.skipped) {
    skipped.push_back(
        {{"form", row.form}, {"inner", row.inner}, {"reason", row.reason}});
  }
  return {
      {"schema", 1},
      {"model", bench.config.name},
      {"seq", o.seq},
      {"batch", o.batch},
      {"dtype", name_of(o.dtype)},
      {"threads", o.threads},
      {"seed", o.seed},
      {"repeat", o.repeat},
      {"warmup", o.warmup},
      {"baseline", bench.baseline().name()},
      {"rows", std::move(rows)},
      {"skipped", std::move(skipped)}};
}

} // namespace laga::cli
