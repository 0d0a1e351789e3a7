#include "cli/bench_layer.h"

#include "laga/attention/inner/inner.h"
#include "laga/comm/mpi/mpi.h"
#include "laga/core/check.h"
#include "laga/core/parse.h"
#include "laga/core/safetensors.h"

#include <ATen/Parallel.h>

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "cli/bench.h"
#include "cli/command.h"
#include "cli/interrupt.h"
#include "cli/json_output.h"
#include "cli/names.h"
#include "cli/progress.h"

namespace laga::cli {

namespace {

// Those of options.inners that `form` can use, in their order.
std::vector<std::string> inners_of(
    const BenchLayerOptions& options, const Form& form) {
  const std::vector<std::string> usable = inners_for(form);
  std::vector<std::string> inners;
  for (const std::string& inner : options.inners) {
    if (std::find(usable.begin(), usable.end(), inner) != usable.end()) {
      inners.push_back(inner);
    }
  }
  return inners;
}

RunShape shape_of(const BenchLayerOptions& options) {
  return {options.seq, options.batch, /*ranks=*/1, options.dtype};
}

// Numbers that a token has between the projections: queries, keys and values
// as the form makes them, and the output; as many gradients; and about as many
// in an inner attention's copies.
double numbers_per_token(const MlaConfig& c, const Form& form) {
  const int64_t r = c.qk_rope_head_dim;
  const int64_t per_head =
      form.space == ScoreSpace::kLatent
          ? c.qk_head_dim() + 2 * c.kv_lora_rank + r
          : c.qk_head_dim() + c.qk_nope_head_dim + r + 2 * c.v_head_dim;
  return 3 * static_cast<double>(c.num_heads * per_head + 2 * c.hidden_size);
}

// Weights with their gradients, what the tokens have, and the inner attention's
// score-sized buffers [b, n, S, S].
double bytes_needed(
    const BenchLayerOptions& options,
    const MlaConfig& config,
    const LayerRow& row) {
  const auto tokens = static_cast<double>(options.seq * options.batch);
  double numbers = tokens * numbers_per_token(config, find_form(row.form));
  for (const Parameter& parameter : parameters(config)) {
    numbers += 2 * static_cast<double>(parameter.numel());
  }
  numbers += static_cast<double>(find_inner(row.inner).score_buffers) * tokens *
             static_cast<double>(options.seq) *
             static_cast<double>(config.num_heads);
  return numbers * static_cast<double>(size_of(options.dtype));
}

// Sorts the rows into those that fit into memory and those that do not.
void add_row(LayerBench& bench, LayerRow row) {
  const double bytes = bytes_needed(bench.options, bench.config, row);
  const double available = available_memory();
  if (bytes <= available) {
    bench.rows.push_back(std::move(row));
    return;
  }
  const std::string reason = fmt::format(
      "needs about {:.1f} GB and {:.1f} GB are available",
      bytes / 1e9,
      available / 1e9);
  fmt::print(stderr, "laga: skipped: {} {}\n", row.name(), reason);
  bench.skipped.push_back({row.form, row.inner, reason});
}

// Everything that can be wrong is found here, before anything long begins.
LayerBench planned(const BenchLayerOptions& options) {
  LAGA_CHECK(
      !launched_by_mpi(), "bench layer is one rank: leave the launcher out");
  LayerBench bench{options, load_config(options.model), {}, {}};
  require_computable(bench.config);
  for (const std::string& name : options.forms) {
    const Form& form = find_form(name);
    check_shape(bench.config, form, shape_of(options));
    for (const std::string& inner : inners_of(options, form)) {
      add_row(bench, {name, inner, {}, {}, {}, {}});
    }
  }
  LAGA_CHECK(
      !bench.skipped.empty() || !bench.rows.empty(),
      "none of --forms can use any of --inners");
  LAGA_CHECK(
      !bench.rows.empty(),
      "no row fits into memory. Scores grow with batch x heads x "
      "sequence^2: shorten --seq");
  return bench;
}

LayerRun run_row(
    const LayerBench& bench, const LayerRow& row, const LayerInputs& inputs) {
  LayerTask task{
      bench.config, find_form(row.form), shape_of(bench.options), {}};
  task.options.inner = row.inner;
  return run_on_threads(task, inputs);
}

void add_figures(const LayerRun& run, LayerRow& row) {
  row.forward_s.push_back(run.seconds.forward);
  row.backward_s.push_back(run.seconds.backward);
  row.sum_s.push_back(run.seconds.forward + run.seconds.backward);
  row.memory = run.memory[0];
}

const char* stored_name_of(Dtype dtype) {
  return dtype == Dtype::kBf16 ? "BF16" : dtype == Dtype::kFp32 ? "F32" : "F64";
}

// Into a file of --output's folder; hidden states batch first, as in the files
// of tests/reference.
void write(
    const LayerBench& bench, const std::string& name, NamedResults tensors) {
  std::vector<TensorBytes> stored;
  for (auto& [key, tensor] : tensors) {
    if (tensor.dim() == 3) tensor = tensor.transpose(0, 1);
    tensor = tensor.contiguous();
    stored.push_back(
        {key,
         stored_name_of(bench.options.dtype),
         tensor.sizes().vec(),
         tensor.const_data_ptr()});
  }
  const std::string path =
      fmt::format("{}/{}.safetensors", bench.options.output, name);
  // The name that write_safetensors gives an unfinished file.
  const RemoveIfInterrupted guard(
      fmt::format("{}.{}.unfinished", path, getpid()));
  write_safetensors(path, stored, {{"written by", "laga bench layer"}});
}

void write_inputs(const LayerBench& bench, const LayerInputs& inputs) {
  NamedResults tensors{
      {"hidden_states", inputs.hidden}, {"grad_output", inputs.grad_output}};
  for (const auto& [name, tensor] : named(inputs.weights)) {
    tensors[name] = tensor;
  }
  write(bench, "inputs", std::move(tensors));
}

// Rows take turns, so that a change of the machine's speed hits all alike.
void measure(LayerBench& bench, const LayerInputs& inputs, Progress& progress) {
  const BenchLayerOptions& options = bench.options;
  for (int round = -options.warmup; round < options.repeat; ++round) {
    for (LayerRow& row : bench.rows) {
      progress.step(
          round < 0
              ? fmt::format("warm-up: {}", row.name())
              : fmt::format(
                    "run {} of {}: {}", round + 1, options.repeat, row.name()));
      const LayerRun run = run_row(bench, row, inputs);
      if (round >= 0) add_figures(run, row);
      if (round + 1 < options.repeat || options.output.empty()) continue;
      write(
          bench,
          row.form + "-" + row.inner,
          {{"output", run.results.at("output")},
           {"grad.hidden_states", run.results.at("grad.hidden_states")}});
    }
  }
}

void check_folder(const std::string& path) {
  if (path.empty()) return;
  std::error_code error;
  LAGA_CHECK(
      std::filesystem::is_directory(path, error) &&
          access(path.c_str(), W_OK) == 0,
      "--output ",
      path,
      " is no folder that can be written to");
}

int bench_layer(const BenchLayerOptions& options) {
  check_folder(options.output);
  LayerBench bench = planned(options);
  JsonOutput json(options.json);
  if (options.threads > 0) at::set_num_threads(options.threads);
  bench.options.threads = at::get_num_threads();

  const auto rows = static_cast<int>(bench.rows.size());
  Progress progress(1 + (options.warmup + options.repeat) * rows);
  progress.step(fmt::format("weights and inputs (seed {})", options.seed));
  const LayerInputs inputs = make_inputs(
      bench.config, options.seq, options.batch, options.dtype, options.seed);
  if (!options.output.empty()) write_inputs(bench, inputs);
  measure(bench, inputs, progress);
  print_table(bench, json.table_stream());
  json.write(json_document(bench));
  return kOk;
}

// Options whose text is parsed when the command runs, where errors are caught.
struct Typed {
  BenchLayerOptions options;
  std::string seq = "2k", batch = "1", dtype = "bf16";
  std::string forms = "all", inners = "all";

  BenchLayerOptions parsed() const {
    BenchLayerOptions result = options;
    result.seq = parse_count(seq, "--seq");
    result.batch = parse_count(batch, "--batch");
    result.dtype = parse_dtype(dtype);
    result.forms = parse_forms(forms);
    result.inners = parse_inners(inners);
    return result;
  }
};

void add_layer_options(CLI::App& command, Typed& typed) {
  command
      .add_option(
          "--model",
          typed.options.model,
          "Preset (laga info lists them) or path of a Hugging Face config.json")
      ->capture_default_str();
  command.add_option("--seq", typed.seq, "Tokens of a sequence")
      ->capture_default_str();
  command.add_option("--batch", typed.batch, "Sequences")
      ->capture_default_str();
  command.add_option("--dtype", typed.dtype, "bf16, fp32 or fp64")
      ->capture_default_str();
  command
      .add_option(
          "--forms",
          typed.forms,
          "all, or some of explicit,explicit-compact,absorbed,laga")
      ->capture_default_str();
  command
      .add_option(
          "--inners",
          typed.inners,
          "all, or some of " + listed(inner_names()) +
              ": inner attentions; each form takes those it can use")
      ->capture_default_str();
  command.add_option("--seed", typed.options.seed, "Of weights and inputs")
      ->capture_default_str();
}

void add_run_options(CLI::App& command, BenchLayerOptions& options) {
  command
      .add_option(
          "--threads", options.threads, "Of the one rank (default: all cores)")
      ->check(CLI::Range(1, 1024));
  command
      .add_option(
          "--repeat", options.repeat, "Runs of each row; the rows take turns")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000));
  command
      .add_option(
          "--warmup", options.warmup, "Runs of each row before that, untimed")
      ->capture_default_str()
      ->check(CLI::Range(0, 1000));
  command.add_option(
      "--json",
      options.json,
      "All figures into FILE, or - for stdout (the table then goes to stderr)");
  command.add_option(
      "--output",
      options.output,
      "Weights and inputs into inputs.safetensors of FOLDER, and each row's "
      "output and input gradient into FORM-INNER.safetensors");
}

} // namespace

void add_bench_layer(CLI::App& bench, std::function<int()>& chosen) {
  auto* command = bench.add_subcommand(
      "layer",
      "Time and memory of a whole attention layer on one rank, forward and "
      "backward, causal,\nby every form and inner attention.");
  auto typed = std::make_shared<Typed>();
  add_layer_options(*command, *typed);
  add_run_options(*command, typed->options);
  command->footer(
      "Example: laga bench layer --model deepseek-v2-lite --seq 4k "
      "--forms explicit,laga --repeat 3");
  command->callback([typed, &chosen] {
    chosen = [typed] { return bench_layer(typed->parsed()); };
  });
}

} // namespace laga::cli
