#include "cli/plan.h"

#include "laga/core/check.h"
#include "laga/core/parse.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "cli/command.h"
#include "cli/json_output.h"
#include "cli/names.h"

namespace laga::cli {

namespace {

// Options whose text is parsed when the command runs, where errors are caught.
struct Typed {
  PlanOptions options;
  std::string seq = "128k", batch = "1", ranks = "32", layers = "1", tp = "1";
  std::string dtype = "bf16", other_bytes = "0", memory_limit;
  bool full = false, send_delta = false;

  PlanOptions parsed() const;
};

int small_count(const std::string& text, const char* what) {
  const int64_t count = parse_count(text, what);
  LAGA_CHECK(count <= 65536, what, " is at most 65536 (got '", text, "')");
  return static_cast<int>(count);
}

// "80g", "512m", "1e9", "0"
double parse_bytes(const std::string& text, const char* what) {
  constexpr const char* kMust =
      " must be bytes, such as 80g (1e9), 512m (1e6) or 0 (got '";
  size_t end = 0;
  double number = 0;
  try {
    number = std::stod(text, &end);
  } catch (const std::exception&) {
    throw InvalidArgument(detail::concat("[plan] ", what, kMust, text, "')"));
  }
  const std::string unit = text.substr(end);
  const double scale = unit == "g" || unit == "G"   ? 1e9
                       : unit == "m" || unit == "M" ? 1e6
                       : unit.empty()               ? 1
                                                    : -1;
  if (!(number >= 0) || !std::isfinite(number) || scale < 0)
    throw InvalidArgument(detail::concat("[plan] ", what, kMust, text, "')"));
  return number * scale;
}

PlanOptions Typed::parsed() const {
  PlanOptions result = options;
  PlanQuery& query = result.query;
  query.shape = {
      parse_count(seq, "--seq"),
      parse_count(batch, "--batch"),
      small_count(ranks, "--ranks"),
      parse_dtype(dtype)};
  query.tp = small_count(tp, "--tp");
  query.layers = parse_count(layers, "--layers");
  query.causal = !full;
  query.send_delta = send_delta;
  query.other_bytes = parse_bytes(other_bytes, "--other-bytes");
  if (!memory_limit.empty())
    query.memory_limit = parse_bytes(memory_limit, "--memory-limit");
  query.config = load_config(options.model);
  return result;
}

int plan(const PlanOptions& options) {
  const System system = load_system(options.system);
  if (!options.sweep.empty()) return run_sweep(options, system);
  JsonOutput json(options.json);
  PlanReport report{options, system, make_plan(options.query, system), {}};
  report.flips = find_flips(options.query, system);
  if (options.breakdown.empty()) {
    print_plan(report, json.table_stream());
  } else {
    print_breakdown(report, json.table_stream());
  }
  json.write(plan_json(options, report.rows));
  return kOk;
}

void add_options(CLI::App& command, Typed& typed) {
  PlanOptions& options = typed.options;
  const auto text =
      [&](const char* name, std::string& value, const char* what) {
        command.add_option(name, value, what)->capture_default_str();
      };
  command
      .add_option(
          "--model",
          options.model,
          "Preset or path of a Hugging Face config.json. Presets: " +
              listed(preset_names()))
      ->capture_default_str();
  command
      .add_option(
          "--system",
          options.system,
          "Preset or path of a system's JSON file. Systems: " +
              listed(system_names()))
      ->capture_default_str();
  text("--seq", typed.seq, "Tokens of the whole sequence");
  text("--batch", typed.batch, "Sequences");
  text("--ranks", typed.ranks, "Ranks that share a sequence (P)");
  text("--tp", typed.tp, "Tensor-parallel ranks that share the heads besides");
  text("--dtype", typed.dtype, "bf16, fp32 or fp64");
  text("--layers", typed.layers, "Layers whose saved tensors add up");
  text(
      "--other-bytes",
      typed.other_bytes,
      "Of a rank's memory, what is not this attention's: 20g, 500m");
  command.add_option(
      "--memory-limit",
      typed.memory_limit,
      "Of a rank: 80g (default: the system's)");
  command.add_flag(
      "--send-delta",
      typed.send_delta,
      "Send rowsum(out d_out) with the output's gradient (laga compare "
      "--help)");
  command.add_flag("--full", typed.full, "Full attention instead of causal");
  command.add_option(
      "--breakdown",
      options.breakdown,
      "Instead of the table, what a row keeps in memory, tensor by tensor: "
      "\"laga stream\"");
  command.add_option(
      "--sweep",
      options.sweep,
      "Instead of the table, all rows at seq=4k..1m,ranks=2..128 (doubling), "
      "as "
      "CSV,\nor as JSON with --json");
  command.add_option(
      "--json",
      options.json,
      "All figures into FILE, or - for stdout (the table then goes to stderr)");
}

} // namespace

void add_plan(CLI::App& program, std::function<int()>& chosen) {
  auto* command = program.add_subcommand(
      "plan",
      "What each form costs on a model and a system, and which to take: bytes "
      "and memory\nas a run would have them, time from the system's rates.");
  auto typed = std::make_shared<Typed>();
  add_options(*command, *typed);
  command->footer(
      "Example: laga plan --model kimi-k2 --seq 256k --ranks 32 --system "
      "h200-ib --layers 61\n"
      "         laga plan --breakdown \"laga stream\"\n"
      "         laga plan --sweep seq=4k..1m,ranks=2..128 > sweep.csv");
  command->callback(
      [typed, &chosen] { chosen = [typed] { return plan(typed->parsed()); }; });
}

} // namespace laga::cli
