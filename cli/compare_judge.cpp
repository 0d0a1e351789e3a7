#include "laga/measure/predicted_memory.h"
#include "laga/plan/bytes.h"

#include <fmt/format.h>

#include <utility>

#include "cli/compare.h"

namespace laga::cli {

namespace {

void check_transfers(
    const LayerTask& task, const LayerRun& run, FormFigures& figures) {
  for (size_t i = 0; i < run.transfers.size(); ++i) {
    const int rank = run.first_rank + static_cast<int>(i);
    const auto predicted = predict_transfers(
        task.config,
        task.form,
        task.shape,
        {rank, run.node_of},
        {task.options.send_delta});
    for (const std::string& line : differences(predicted, run.transfers[i])) {
      figures.failures.push_back(fmt::format("rank {}: {}", rank, line));
    }
    if (i == 0) figures.predicted = predicted;
  }
}

void check_memory_is_equal(const LayerRun& run, FormFigures& figures) {
  const MemoryBytes& first = run.memory[0];
  for (size_t rank = 1; rank < run.memory.size(); ++rank) {
    const MemoryBytes& other = run.memory[rank];
    if (other == first) continue;
    figures.failures.push_back(fmt::format(
        "rank {} needed other memory than rank 0 (saved {} vs {}, peak {} vs "
        "{} bytes)",
        rank,
        other.saved,
        first.saved,
        other.peak,
        first.peak));
  }
}

void check_errors(
    const LayerTask& task,
    const NamedResults& results,
    const NamedResults& reference,
    FormFigures& figures) {
  const double limit = gross_error_limit(task.shape.dtype);
  figures.errors = relative_errors(task.config, results, reference);
  for (const NamedError& error : figures.errors) {
    // Not `>`: an error that is not a number fails too.
    if (error.relative <= limit) continue;
    figures.failures.push_back(fmt::format(
        "{} is {:.1e} from the reference (limit {:.0e})",
        error.name,
        error.relative,
        limit));
  }
}

} // namespace

double gross_error_limit(Dtype dtype) {
  return dtype == Dtype::kBf16 ? 0.1 : dtype == Dtype::kFp32 ? 1e-5 : 1e-12;
}

FormFigures judged(
    const LayerTask& task,
    LayerRun run,
    int threads,
    const std::optional<NamedResults>& reference) {
  FormFigures figures;
  figures.form = task.form.name;
  figures.inner = task.options.inner;
  figures.seconds = run.seconds;
  figures.memory = run.memory[0];
  figures.measured = run.transfers[0];
  figures.failures = run.disagreements;
  figures.tape = predicted_memory(task, threads);
  check_transfers(task, run, figures);
  check_memory_is_equal(run, figures);
  if (reference) check_errors(task, run.results, *reference, figures);
  if (!run.results.empty()) {
    figures.output_digest = digest({*run.results.find("output")});
    run.results.erase("output");
    figures.gradients_digest = digest(run.results);
  }
  return figures;
}

} // namespace laga::cli
