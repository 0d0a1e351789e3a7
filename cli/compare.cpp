#include "cli/compare.h"

#include "laga/attention/dtype.h"
#include "laga/attention/inner/inner.h"
#include "laga/core/check.h"
#include "laga/core/parse.h"
#include "laga/plan/bytes.h"
#include "laga/reference/mla.h"

#include <ATen/Parallel.h>
#include <ATen/ops/arange.h>

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "cli/command.h"
#include "cli/json_output.h"
#include "cli/progress.h"

namespace laga::cli {

namespace {

RunShape shape_of(const CompareOptions& options) {
  return {options.seq, options.batch, options.ranks, options.dtype};
}

// Everything that can be wrong is found here, before anything long begins.
void check_options(const CompareOptions& options, const MlaConfig& config) {
  require_computable(config);
  for (const std::string& form : options.forms) {
    check_shape(config, find_form(form), shape_of(options));
  }
  find_inner(options.inner);
  // Score-sized buffers: eager's three over all ranks, or the reference's six
  // (scores, scaled, masked, softmax and two gradients) in wider numbers.
  const double scores = static_cast<double>(options.batch) *
                        static_cast<double>(config.num_heads) *
                        static_cast<double>(options.seq) *
                        static_cast<double>(options.seq);
  const double wide = options.dtype == Dtype::kFp64 ? 8 : 4;
  const double eager = 3 * scores * static_cast<double>(size_of(options.dtype));
  check_memory(
      std::max(eager, options.reference ? 6 * scores * wide : 0.0),
      "Eager scores grow with batch x heads x sequence^2: shorten --seq" +
          std::string(
              options.reference ? ", or leave the reference out "
                                  "(--no-reference)."
                                : "."));
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

void check_transfers(
    const LayerRun& run, FormFigures& figures, const LayerTask& task) {
  for (int rank = 0; rank < task.shape.ranks; ++rank) {
    const auto predicted =
        predict_transfers(task.config, task.form, task.shape, {rank, {}});
    for (const std::string& line :
         differences(predicted, run.transfers[rank])) {
      figures.failures.push_back(fmt::format("rank {}: {}", rank, line));
    }
    if (rank == 0) figures.predicted = predicted;
    if (run.memory[rank] != run.memory[0]) {
      figures.failures.push_back(fmt::format(
          "rank {} needed other memory than rank 0 (saved {} vs {}, peak {} vs "
          "{} bytes)",
          rank,
          run.memory[rank].saved,
          run.memory[0].saved,
          run.memory[rank].peak,
          run.memory[0].peak));
    }
  }
}

void check_errors(
    const MlaConfig& config,
    const NamedResults& results,
    const NamedResults& reference,
    Dtype dtype,
    FormFigures& figures) {
  figures.errors = relative_errors(config, results, reference);
  for (const NamedError& error : figures.errors) {
    if (error.relative <= gross_error_limit(dtype)) continue;
    figures.failures.push_back(fmt::format(
        "{} is {:.1e} from the reference (limit {:.0e})",
        error.name,
        error.relative,
        gross_error_limit(dtype)));
  }
}

FormFigures run_form(
    const CompareOptions& options,
    const MlaConfig& config,
    const Form& form,
    const LayerInputs& inputs,
    const std::optional<NamedResults>& reference) {
  LayerTask task{config, form, shape_of(options), {}, options.repeat};
  task.options.causal = options.causal;
  task.options.inner = options.inner;
  const LayerRun run = run_on_threads(task, inputs, options.deadline_s);
  FormFigures figures;
  figures.form = form.name;
  figures.seconds = run.seconds;
  figures.memory = run.memory[0];
  figures.measured = run.transfers[0];
  figures.failures = run.disagreements;
  check_transfers(run, figures, task);
  if (reference) {
    check_errors(config, run.results, *reference, options.dtype, figures);
  }
  NamedResults gradients = run.results;
  figures.output_digest = digest({*gradients.find("output")});
  gradients.erase("output");
  figures.gradients_digest = digest(gradients);
  return figures;
}

int compare(const CompareOptions& options) {
  Comparison comparison{options, load_config(options.model), {}};
  const MlaConfig& config = comparison.config;
  check_options(options, config);
  JsonOutput json(options.json);
  Progress progress(
      static_cast<int>(options.forms.size()) + (options.reference ? 2 : 1));

  progress.step(fmt::format("weights and inputs (seed {})", options.seed));
  const LayerInputs inputs = make_inputs(
      config, options.seq, options.batch, options.dtype, options.seed);
  std::optional<NamedResults> reference;
  if (options.reference) {
    progress.step("reference: one rank, plain autograd");
    reference = reference_results(options, config, inputs);
  }
  bool fine = true;
  for (const std::string& name : options.forms) {
    progress.step(fmt::format(
        "{}: forward, backward and weight-gradient sum on {} ranks",
        name,
        options.ranks));
    comparison.forms.push_back(
        run_form(options, config, find_form(name), inputs, reference));
    for (const std::string& failure : comparison.forms.back().failures) {
      fmt::print(stderr, "laga: {}: {}\n", name, failure);
      fine = false;
    }
  }
  print_table(comparison, json.table_stream());
  json.write(json_document(comparison));
  return fine ? kOk : kCheckFailed;
}

// "all" or a list; unknown names raise.
std::vector<std::string> parse_forms(const std::string& text) {
  std::vector<std::string> forms;
  if (text == "all") {
    for (const Form& form : kForms)
      forms.emplace_back(form.name);
    return forms;
  }
  for (const std::string& name : CLI::detail::split(text, ',')) {
    forms.emplace_back(find_form(name).name);
  }
  return forms;
}

std::string presets() {
  std::string names;
  for (const std::string& name : preset_names()) {
    names += (names.empty() ? "" : ", ") + name;
  }
  return names;
}

} // namespace

double gross_error_limit(Dtype dtype) {
  return dtype == Dtype::kBf16 ? 0.1 : dtype == Dtype::kFp32 ? 1e-5 : 1e-12;
}

void add_compare(CLI::App& program, std::function<int()>& chosen) {
  auto* command = program.add_subcommand(
      "compare",
      "Runs the forms on one attention layer, forward and backward, and shows "
      "time, bytes,\nmemory and error of each.");
  struct Text { // as typed; parsed inside the guarded command
    CompareOptions options;
    std::string seq = "1024", batch = "1", ranks = "4", dtype = "bf16";
    std::string forms = "all", repeat = "1";
    bool full = false, no_reference = false;
  };
  auto text = std::make_shared<Text>();
  command
      ->add_option(
          "--model",
          text->options.model,
          "Preset or path of a Hugging Face config.json. Presets: " + presets())
      ->capture_default_str();
  command->add_option("--seq", text->seq, "Tokens of the whole sequence")
      ->capture_default_str();
  command->add_option("--batch", text->batch, "Sequences")
      ->capture_default_str();
  command
      ->add_option(
          "--ranks",
          text->ranks,
          "Ranks the sequence is split over (threads of this process)")
      ->capture_default_str();
  command->add_option("--dtype", text->dtype, "bf16, fp32 or fp64")
      ->capture_default_str();
  command->add_option("--inner", text->options.inner, "Inner attention: eager")
      ->capture_default_str();
  command
      ->add_option(
          "--forms",
          text->forms,
          "all, or some of explicit,explicit-compact,absorbed,laga")
      ->capture_default_str();
  command
      ->add_option(
          "--repeat", text->repeat, "Runs of each form; the fastest counts")
      ->capture_default_str();
  command->add_option("--seed", text->options.seed, "Of weights and inputs")
      ->capture_default_str();
  command
      ->add_option(
          "--deadline",
          text->options.deadline_s,
          "Seconds a rank waits for the others")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  command->add_flag("--full", text->full, "Full attention instead of causal");
  command->add_flag(
      "--no-reference",
      text->no_reference,
      "Leave out the one-rank reference: no errors");
  command->add_option(
      "--json",
      text->options.json,
      "All figures into FILE, or - for stdout (the table then goes to stderr)");
  command->footer(
      "Example: laga compare --model deepseek-v2-lite --seq 2k --ranks 4 "
      "--dtype bf16 --json figures.json");
  command->callback([text, &chosen] {
    chosen = [text] {
      CompareOptions options = text->options;
      options.seq = parse_count(text->seq, "--seq");
      options.batch = parse_count(text->batch, "--batch");
      const int64_t ranks = parse_count(text->ranks, "--ranks");
      LAGA_CHECK(
          ranks <= 1024, "--ranks: at most 1024 threads (got ", ranks, ")");
      options.ranks = static_cast<int>(ranks);
      options.dtype = parse_dtype(text->dtype);
      options.forms = parse_forms(text->forms);
      const int64_t repeat = parse_count(text->repeat, "--repeat");
      LAGA_CHECK(repeat <= 1000, "--repeat: at most 1000 (got ", repeat, ")");
      options.repeat = static_cast<int>(repeat);
      options.causal = !text->full;
      options.reference = !text->no_reference;
      return compare(options);
    };
  });
}

} // namespace laga::cli
