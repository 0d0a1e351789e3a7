#include "laga/core/check.h"
#include "laga/measure/foreign.h"

#include <fmt/format.h>

#include "cli/command.h"
#include "cli/json_output.h"
#include "cli/progress.h"
#include "cli/table.h"
#include "cli/verify.h"

namespace laga::cli {

namespace {

using Json = nlohmann::ordered_json;

// One file and all that was found.
struct ReferenceRuns {
  std::string path;
  ForeignCase a_case;
  ForeignLimits limits;
  std::vector<Verdict> runs;

  bool failed() const {
    for (const Verdict& run : runs) {
      if (!run.failures.empty()) return true;
    }
    return !limits.failures.empty();
  }
};

// Before computing: eager's three score-sized buffers, or in fp32 and bf16 the
// six fp64 ones of the plain computation that the limits come from.
void check_scores_fit(const ForeignCase& a_case) {
  const double scores = static_cast<double>(a_case.batch) *
                        static_cast<double>(a_case.config.num_heads) *
                        static_cast<double>(a_case.seq) *
                        static_cast<double>(a_case.seq);
  check_memory(
      scores * 8 * (a_case.dtype == Dtype::kFp64 ? 3 : 6),
      "Eager scores grow with batch x heads x sequence^2: write the reference "
      "for a shorter sequence.");
}

void print_failures(
    const std::string& who, const std::vector<std::string>& failures) {
  for (const std::string& failure : failures) {
    fmt::print(stderr, "laga: {}: {}\n", who, failure);
  }
}

ReferenceRuns run_reference(
    const std::string& path,
    const RunSelection& selection,
    const Engine& engine) {
  ReferenceRuns reference{path, read_foreign_case(path), {}, {}};
  const ForeignCase& a_case = reference.a_case;
  check_scores_fit(a_case);
  reference.limits = foreign_limits(a_case);
  if (engine.reports()) {
    print_failures(a_case.name, reference.limits.failures);
  }
  verify_foreign(
      a_case,
      reference.limits,
      selection,
      engine.runner(),
      [&](const Verdict& run) {
        print_failures(
            fmt::format(
                "{} {} {} P={}", run.case_name, run.form, run.inner, run.ranks),
            run.failures);
        reference.runs.push_back(run);
      });
  LAGA_CHECK(
      !engine.reports() || !reference.runs.empty(),
      "--ranks leaves no run of ",
      path,
      ": a count must divide its ",
      a_case.config.num_heads,
      " heads and its sequence of ",
      a_case.seq);
  return reference;
}

Json to_json(const Verdict& run) {
  return {
      {"form", run.form},
      {"inner", run.inner},
      {"ranks", run.ranks},
      {"output_error", run.output_error},
      {"worst_gradient_error", run.worst_gradient.relative},
      {"worst_gradient", run.worst_gradient.name},
      {"failures", run.failures}};
}

Json to_json(const ReferenceRuns& reference) {
  const ForeignCase& a_case = reference.a_case;
  const ForeignLimits& limits = reference.limits;
  Json runs = Json::array();
  for (const Verdict& run : reference.runs)
    runs.push_back(to_json(run));
  return {
      {"file", reference.path},
      {"implementation", a_case.implementation},
      {"dtype", name_of(a_case.dtype)},
      {"seq", a_case.seq},
      {"batch", a_case.batch},
      {"cos_sin_difference", limits.table_difference},
      {"softmax_scale_difference", limits.scale_difference},
      {"output_limit", limits.errors.output},
      {"gradient_limit", limits.errors.gradient},
      {"limit_reason", limits.reason},
      {"failures", limits.failures},
      {"runs", runs}};
}

// What the file is and how much is asked of it.
void print_heading(const ReferenceRuns& reference, std::FILE* stream) {
  const ForeignCase& a_case = reference.a_case;
  const ForeignLimits& limits = reference.limits;
  fmt::print(
      stream,
      "{}: {}, {}, S {}, b {}, d {}, {} heads\n"
      "  cos and sin are {:.1e} from ours, the softmax scale {:.1e}\n"
      "  limit {:.1e} for the output, {:.1e} for gradients: {}\n",
      a_case.name,
      a_case.implementation,
      name_of(a_case.dtype),
      a_case.seq,
      a_case.batch,
      a_case.config.hidden_size,
      a_case.config.num_heads,
      limits.table_difference,
      limits.scale_difference,
      limits.errors.output,
      limits.errors.gradient,
      limits.reason);
}

void print_table(const ReferenceRuns& reference, std::FILE* stream) {
  Table table(
      {{"", "form", true},
       {"", "inner", true},
       {"", "P"},
       {"relative error", "output"},
       {"relative error", "gradient"},
       {"relative error", "", true},
       {"", "", true}});
  for (const Verdict& run : reference.runs) {
    table.add_row(
        {run.form,
         run.inner,
         std::to_string(run.ranks),
         fmt::format("{:.1e}", run.output_error),
         fmt::format("{:.1e}", run.worst_gradient.relative),
         run.worst_gradient.name,
         run.failures.empty() ? "ok" : "FAILED"});
  }
  table.print(stream);
}

} // namespace

int verify_references(const VerifyOptions& options, const Engine& engine) {
  JsonOutput json(options.json);
  Progress progress(
      static_cast<int>(options.references.size()), engine.reports());
  Json references = Json::array();
  size_t runs = 0;
  int failed = 0;
  for (const std::string& path : options.references) {
    progress.step(path);
    const ReferenceRuns reference =
        run_reference(path, options.selection, engine);
    if (!engine.reports()) continue;
    print_heading(reference, json.table_stream());
    print_table(reference, json.table_stream());
    fmt::print(json.table_stream(), "\n");
    references.push_back(to_json(reference));
    runs += reference.runs.size();
    failed += reference.failed() ? 1 : 0;
  }
  if (!engine.reports()) return kOk;
  fmt::print(
      json.table_stream(),
      "{} files, {} runs, {} files failed\n",
      options.references.size(),
      runs,
      failed);
  json.write({{"schema", 1}, {"references", references}});
  return failed == 0 ? kOk : kCheckFailed;
}

} // namespace laga::cli
