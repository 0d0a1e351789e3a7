#include "cli/compare.h"

#include "laga/attention/dtype.h"
#include "laga/attention/inner/inner.h"
#include "laga/attention/weights_file.h"
#include "laga/core/check.h"
#include "laga/core/parse.h"
#include "laga/reference/mla.h"

#include <ATen/ops/arange.h>

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "cli/command.h"
#include "cli/json_output.h"
#include "cli/names.h"
#include "cli/progress.h"

namespace laga::cli {

std::vector<FormRow> rows_of(
    const std::vector<std::string>& forms, const std::string& inner) {
  std::vector<FormRow> rows;
  for (const std::string& form : forms) {
    if (inner == "default") {
      rows.push_back({form, std::string(default_inner(find_form(form)))});
      continue;
    }
    const std::vector<std::string> usable = inners_for(find_form(form));
    const size_t before = rows.size();
    for (const std::string& name : parse_inners(inner)) {
      if (std::find(usable.begin(), usable.end(), name) != usable.end())
        rows.push_back({form, name});
    }
    LAGA_CHECK(
        rows.size() > before,
        "form ",
        form,
        " cannot use inner attention '",
        inner,
        "'. It can use: ",
        listed(usable));
  }
  return rows;
}

namespace {

RunShape shape_of(const CompareOptions& options) {
  return {options.seq, options.batch, options.engine.ranks, options.dtype};
}

int64_t score_buffers(const CompareOptions& options) {
  int64_t most = 0;
  for (const FormRow& row : options.rows)
    most = std::max(most, find_inner(row.inner).score_buffers);
  return most;
}

// Bytes of the score-sized buffers: the inner attention's over all ranks that
// are here, or the reference's six (scores, scaled, masked, softmax and two
// gradients) in wider numbers.
double score_bytes(
    const CompareOptions& options, const MlaConfig& config, bool ghost) {
  const auto seq = static_cast<double>(options.seq);
  const double scores = static_cast<double>(options.batch) *
                        static_cast<double>(config.num_heads) * seq * seq;
  const double wide = options.dtype == Dtype::kFp64 ? 8 : 4;
  const double inner = static_cast<double>(score_buffers(options)) * scores *
                       static_cast<double>(size_of(options.dtype)) /
                       (ghost ? options.engine.ranks : 1);
  return std::max(inner, options.reference ? 6 * scores * wide : 0.0);
}

// Everything that can be wrong is found here, before anything long begins.
void check_options(
    const CompareOptions& options, const MlaConfig& config, bool ghost) {
  require_computable(config);
  for (const FormRow& row : options.rows) {
    check_shape(config, find_form(row.form), shape_of(options));
    LAGA_CHECK(
        !options.send_delta || find_inner(row.inner).takes_delta,
        "--send-delta: ",
        row.form,
        " with inner attention '",
        row.inner,
        "'. fused and stream can be given delta");
  }
  LAGA_CHECK(
      options.weights.empty() || !ghost,
      "--weights make no difference to a ghost: leave them out");
  std::string advice =
      "Scores grow with batch x heads x sequence^2: shorten --seq";
  if (score_buffers(options) > 0) {
    advice += ", or take an inner attention without them (--inner)";
  }
  if (options.reference) {
    advice += ", or leave the reference out (--no-reference)";
  }
  check_memory(score_bytes(options, config, ghost), advice + ".");
}

// One rank, plain, on the same rounded weights: fp32 for bf16, fp64 otherwise.
NamedResults reference_results(
    const CompareOptions& options,
    const MlaConfig& config,
    const LayerInputs& inputs) {
  reference::Problem problem;
  problem.config = config;
  problem.hidden = inputs.hidden;
  problem.grad_output = inputs.grad_output;
  problem.positions = at::arange(options.seq, at::kLong);
  problem.causal = options.causal;
  for (const auto& [name, tensor] : named(inputs.weights)) {
    problem.weights[name] = tensor;
  }
  const auto wide = options.dtype == Dtype::kBf16 ? at::kFloat : at::kDouble;
  return reference::solve(reference::converted(problem, wide));
}

LayerTask task_of(
    const CompareOptions& options,
    const MlaConfig& config,
    const FormRow& row) {
  LayerTask task{
      config, find_form(row.form), shape_of(options), {}, options.repeat};
  task.options.causal = options.causal;
  task.options.inner = row.inner;
  task.options.send_delta = options.send_delta;
  return task;
}

// Says what failed on stderr; whether nothing did.
bool all_fine(const std::vector<FormFigures>& forms) {
  bool fine = true;
  for (const FormFigures& form : forms) {
    for (const std::string& failure : form.failures) {
      fmt::print(stderr, "laga: {}: {}\n", form.form, failure);
      fine = false;
    }
  }
  return fine;
}

// The reference comes last, so that no rank waits for it.
int compare(CompareOptions options) {
  const MlaConfig config = load_config(options.model);
  const Engine engine(options.engine);
  options.engine.ranks = engine.ranks();
  options.engine.comm = engine.comm();
  options.reference = options.reference && engine.has_results();
  check_options(options, config, !engine.has_results());
  JsonOutput json(engine.reports() ? options.json : "");
  const auto form_count = static_cast<int>(options.rows.size());
  Progress progress(form_count + (options.reference ? 2 : 1), engine.reports());

  progress.step(fmt::format(
      "{} and inputs (seed {})",
      options.weights.empty() ? "weights" : options.weights,
      options.seed));
  LayerInputs inputs =
      engine.make_inputs(config, shape_of(options), options.seed);
  if (!options.weights.empty()) {
    inputs.weights =
        load_weights(config, options.weights, options.dtype, options.layer);
  }
  std::vector<LayerRun> runs;
  for (const FormRow& row : options.rows) {
    progress.step(fmt::format(
        "{} ({}): forward, backward and weight-gradient sum on {} ranks",
        row.form,
        row.inner,
        options.engine.ranks));
    std::optional<LayerRun> run =
        engine.run(task_of(options, config, row), inputs);
    if (run) runs.push_back(std::move(*run));
  }
  if (!engine.reports()) return kOk;

  std::optional<NamedResults> reference;
  if (options.reference) {
    progress.step("reference: one rank, plain autograd");
    reference = reference_results(options, config, inputs);
  }
  const std::vector<int>& node_of = runs[0].node_of;
  const int nodes = 1 + *std::max_element(node_of.begin(), node_of.end());
  Comparison comparison{options, engine.description(), nodes, config, {}};
  for (size_t i = 0; i < runs.size(); ++i) {
    comparison.forms.push_back(judged(
        task_of(options, config, options.rows[i]),
        std::move(runs[i]),
        engine.threads_of_a_rank(),
        reference));
  }
  print_table(comparison, json.table_stream());
  if (options.tape) print_tapes(comparison, json.table_stream());
  json.write(json_document(comparison));
  return all_fine(comparison.forms) ? kOk : kCheckFailed;
}

// Options whose text is parsed when the command runs, where errors are caught.
struct Typed {
  CompareOptions options;
  std::string seq = "1024", batch = "1", dtype = "bf16", forms = "all";
  bool full = false, no_reference = false;

  CompareOptions parsed() const {
    CompareOptions result = options;
    result.seq = parse_count(seq, "--seq");
    result.batch = parse_count(batch, "--batch");
    result.dtype = parse_dtype(dtype);
    result.rows = rows_of(parse_forms(forms), options.inner);
    result.causal = !full;
    result.reference = !no_reference;
    return result;
  }
};

void add_options(CLI::App& command, Typed& typed) {
  CompareOptions& options = typed.options;
  command
      .add_option(
          "--model",
          options.model,
          "Preset or path of a Hugging Face config.json. Presets: " +
              listed(preset_names()))
      ->capture_default_str();
  command.add_option("--seq", typed.seq, "Tokens of the whole sequence")
      ->capture_default_str();
  command.add_option("--batch", typed.batch, "Sequences")
      ->capture_default_str();
  add_engine_options(command, options.engine);
  command.add_option("--dtype", typed.dtype, "bf16, fp32 or fp64")
      ->capture_default_str();
  command
      .add_option(
          "--inner",
          options.inner,
          "default (stream for laga, fused for the others), all, or some of\n" +
              listed(inner_names()) +
              ": inner attentions;\neach form takes those it can use")
      ->capture_default_str();
  command
      .add_option(
          "--forms",
          typed.forms,
          "all, or some of explicit,explicit-compact,absorbed,laga")
      ->capture_default_str();
  command
      .add_option(
          "--repeat", options.repeat, "Runs of each form; the fastest counts")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000));
  command.add_option("--seed", options.seed, "Of weights and inputs")
      ->capture_default_str();
  command.add_option(
      "--weights",
      options.weights,
      "Weights from a safetensors file, an index of several or their folder, "
      "under Hugging Face's names (default: drawn from the seed)");
  command.add_option(
      "--layer",
      options.layer,
      "Which layer of --weights, where the file has several");
  command.add_flag(
      "--send-delta",
      options.send_delta,
      "Send rowsum(out d_out) with the output's gradient: the output is kept "
      "once, not twice");
  command.add_flag(
      "--tape",
      options.tape,
      "Also print what is alive, tensor by tensor, at the end of the forward "
      "and at the\npeak, as predicted");
  command.add_flag("--full", typed.full, "Full attention instead of causal");
  command.add_flag(
      "--no-reference",
      typed.no_reference,
      "Leave out the one-rank reference: no errors");
  command.add_option(
      "--json",
      options.json,
      "All figures into FILE, or - for stdout (the table then goes to stderr)");
}

} // namespace

void add_compare(CLI::App& program, std::function<int()>& chosen) {
  auto* command = program.add_subcommand(
      "compare",
      "Runs the forms on one attention layer, forward and backward, and shows "
      "time, bytes,\nmemory and error of each.");
  auto typed = std::make_shared<Typed>();
  add_options(*command, *typed);
  command->footer(
      "Example: laga compare --model deepseek-v2-lite --seq 2k --ranks 4 "
      "--dtype bf16 --json figures.json");
  command->callback([typed, &chosen] {
    chosen = [typed] { return compare(typed->parsed()); };
  });
}

} // namespace laga::cli
