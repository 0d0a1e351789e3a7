#include "cli/verify.h"

#include "laga/attention/inner/inner.h"
#include "laga/core/check.h"
#include "laga/core/parse.h"
#include "laga/measure/verification.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "cli/command.h"
#include "cli/engine.h"
#include "cli/json_output.h"
#include "cli/names.h"
#include "cli/progress.h"
#include "cli/table.h"

namespace laga::cli {

namespace {

using Json = nlohmann::ordered_json;

// The worst of all runs of one form with one inner attention in one dtype.
struct Summary {
  int runs = 0;
  int failed = 0;
  double output_error = 0;
  NamedError gradient{"", 0};
};

using Summaries =
    std::map<std::tuple<Dtype, std::string, std::string>, Summary>;

void add(const Verdict& verdict, Summaries& summaries) {
  Summary& summary = summaries[{verdict.dtype, verdict.form, verdict.inner}];
  ++summary.runs;
  summary.failed += verdict.failures.empty() ? 0 : 1;
  summary.output_error = std::max(summary.output_error, verdict.output_error);
  if (verdict.worst_gradient.relative > summary.gradient.relative) {
    summary.gradient = verdict.worst_gradient;
  }
}

void print_failures(const Verdict& verdict) {
  for (const std::string& failure : verdict.failures) {
    fmt::print(
        stderr,
        "laga: {} {} {} {} P={}: {}\n",
        verdict.case_name,
        name_of(verdict.dtype),
        verdict.form,
        verdict.inner,
        verdict.ranks,
        failure);
  }
}

Json to_json(const Verdict& verdict) {
  return {
      {"case", verdict.case_name},
      {"dtype", name_of(verdict.dtype)},
      {"form", verdict.form},
      {"inner", verdict.inner},
      {"ranks", verdict.ranks},
      {"output_error", verdict.output_error},
      {"worst_gradient_error", verdict.worst_gradient.relative},
      {"worst_gradient", verdict.worst_gradient.name},
      {"failures", verdict.failures}};
}

void print_table(const Summaries& summaries, std::FILE* stream) {
  Table table(
      {{"", "dtype", true},
       {"", "form", true},
       {"", "inner", true},
       {"", "runs"},
       {"", "failed"},
       {"largest relative error", "output"},
       {"largest relative error", "gradient"},
       {"largest relative error", "", true}});
  for (const auto& [key, summary] : summaries) {
    table.add_row(
        {std::string(name_of(std::get<Dtype>(key))),
         std::get<1>(key),
         std::get<2>(key),
         std::to_string(summary.runs),
         std::to_string(summary.failed),
         fmt::format("{:.1e}", summary.output_error),
         fmt::format("{:.1e}", summary.gradient.relative),
         summary.gradient.name});
  }
  table.print(stream);
}

// Under a launcher there are no more ranks than it started.
std::vector<int> ranks_to_run(
    const std::vector<int>& asked_for, const Engine& engine) {
  if (engine.comm() != "mpi") return asked_for;
  std::vector<int> ranks;
  for (int count = 1; count <= engine.ranks(); ++count) {
    const bool wanted =
        asked_for.empty() ||
        std::find(asked_for.begin(), asked_for.end(), count) != asked_for.end();
    if (wanted) ranks.push_back(count);
  }
  LAGA_CHECK(
      !ranks.empty(),
      "--ranks: none of them fits the ",
      engine.ranks(),
      " ranks that the launcher started");
  return ranks;
}

int verify_all(const VerifyOptions& options, const Engine& engine) {
  const std::vector<VerifyCase> cases = verify_cases(options.quick);
  JsonOutput json(options.json);
  Progress progress(static_cast<int>(cases.size()), engine.reports());
  Summaries summaries;
  Json runs = Json::array();
  int total = 0, failed = 0;
  for (const VerifyCase& a_case : cases) {
    progress.step(a_case.name);
    for (const Dtype dtype : {Dtype::kFp64, Dtype::kFp32, Dtype::kBf16}) {
      verify(
          a_case,
          dtype,
          options.selection,
          engine.runner(),
          [&](const Verdict& verdict) {
            add(verdict, summaries);
            print_failures(verdict);
            runs.push_back(to_json(verdict));
            ++total;
            failed += verdict.failures.empty() ? 0 : 1;
          });
    }
  }
  if (!engine.reports()) return kOk;
  LAGA_CHECK_GT(total, 0, "--ranks leaves no run: no case has such a count");
  print_table(summaries, json.table_stream());
  fmt::print(
      json.table_stream(),
      "\n{} runs, {} failed. Limits: 1e-12 in fp64; in fp32 and bf16 twice the "
      "error of the plain\none-rank computation. Bytes sent equal the "
      "prediction in every run that did not fail.\n",
      total,
      failed);
  json.write({{"schema", 1}, {"quick", options.quick}, {"runs", runs}});
  return failed == 0 ? kOk : kCheckFailed;
}

} // namespace

void add_verify(CLI::App& program, std::function<int()>& chosen) {
  auto* command = program.add_subcommand(
      "verify",
      "Judges every form against an fp64 reference over a matrix of small "
      "configurations:\noutput, input gradient and every parameter's gradient, "
      "in fp64, fp32 and bf16.\nWith --reference: against files that other "
      "implementations wrote. With\n--accounting: bytes and memory against "
      "their prediction.");
  auto options = std::make_shared<VerifyOptions>();
  auto ranks = std::make_shared<std::string>();
  auto inners = std::make_shared<std::string>("all");
  auto* quick = command->add_flag(
      "--quick", options->quick, "Two cases that show most mistakes");
  auto* accounting = command->add_flag(
      "--accounting",
      options->accounting,
      "Runs all forms and inner attentions, on threads and as one rank alone, "
      "and\ncompares every transfer and the memory with laga's prediction: "
      "minutes, with\n--quick half a minute");
  command
      ->add_option(
          "--reference",
          options->references,
          "A safetensors file with weights, inputs and results of another "
          "implementation\n(tests/reference writes such files); may be given "
          "several times. Takes the\nmatrix's place")
      ->type_name("FILE")
      ->expected(1)
      ->take_all()
      ->excludes(quick)
      ->excludes(accounting);
  auto* ranks_option = command->add_option(
      "--ranks",
      *ranks,
      "Only these rank counts, such as 1,2,4,8 (default: all that a case "
      "lists,\nor that a reference's heads and sequence allow)");
  ranks_option->excludes(accounting);
  command
      ->add_option(
          "--inner",
          *inners,
          "all, or some of " + listed(inner_names()) +
              ": inner attentions;\neach form takes those it can use")
      ->capture_default_str();
  command
      ->add_option(
          "--deadline",
          options->deadline_s,
          "Seconds a rank waits for the others")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  command->add_option(
      "--json",
      options->json,
      "Every run into FILE, or - for stdout (the table then goes to stderr)");
  command->footer(
      "Example: laga verify --quick --ranks 1,4\n"
      "         laga verify --reference layer.safetensors --ranks 1,2,4\n"
      "         laga verify --accounting --quick");
  command->callback([options, ranks, inners, &chosen] {
    chosen = [options, ranks, inners] {
      RunSelection& selection = options->selection;
      selection.inners = parse_inners(*inners);
      if (!ranks->empty()) {
        for (const int64_t count : parse_counts(*ranks, "--ranks")) {
          selection.ranks.push_back(static_cast<int>(
              std::min<int64_t>(count, std::numeric_limits<int>::max())));
        }
      }
      EngineOptions of_engine;
      of_engine.deadline_s = options->deadline_s;
      const Engine engine(of_engine);
      selection.ranks = ranks_to_run(selection.ranks, engine);
      const auto run = options->accounting           ? verify_accounting
                       : options->references.empty() ? verify_all
                                                     : verify_references;
      return run(*options, engine);
    };
  });
}

} // namespace laga::cli
