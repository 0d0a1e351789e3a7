#include "laga/core/check.h"
#include "laga/measure/accounting.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <utility>

#include "cli/command.h"
#include "cli/json_output.h"
#include "cli/progress.h"
#include "cli/table.h"
#include "cli/verify.h"

namespace laga::cli {

namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kLargePeak = int64_t{64} << 20;

// Of one form with one inner attention, or of everything.
struct Summary {
  int runs = 0;
  int failed = 0;
  int transfers = 0;
  int64_t byte_difference = 0;
  int large = 0; // runs whose peak is over kLargePeak
  int64_t unexplained_saved = 0;
  int64_t unexplained_peak = 0;
  double saved_error = 0, peak_error = 0; // relative, of the large ones

  void add(const AccountedRun& run) {
    const auto grow = [](auto& largest, auto value) {
      largest = std::max(largest, value);
    };
    const auto relative = [](int64_t off, int64_t measured) {
      return std::abs(static_cast<double>(off)) / static_cast<double>(measured);
    };
    ++runs;
    failed += run.failures.empty() ? 0 : 1;
    transfers += run.transfers;
    grow(byte_difference, run.byte_difference);
    grow(unexplained_saved, std::abs(run.unexplained_saved()));
    grow(unexplained_peak, std::abs(run.unexplained_peak()));
    if (run.measured.peak <= kLargePeak) return;
    ++large;
    grow(saved_error, relative(run.unexplained_saved(), run.measured.saved));
    grow(peak_error, relative(run.unexplained_peak(), run.measured.peak));
  }
};

using Summaries = std::map<std::pair<std::string, std::string>, Summary>;

void print_table(const Summaries& summaries, std::FILE* stream) {
  Table table(
      {{"", "form", true},
       {"", "inner", true},
       {"", "runs"},
       {"", "failed"},
       {"", "transfers"},
       {"largest difference, B", "transfer"},
       {"largest difference, B", "saved"},
       {"largest difference, B", "peak"},
       {"peak over 64 MiB", "runs"},
       {"peak over 64 MiB", "saved %"},
       {"peak over 64 MiB", "peak %"}});
  for (const auto& [key, summary] : summaries) {
    table.add_row(
        {key.first,
         key.second,
         std::to_string(summary.runs),
         std::to_string(summary.failed),
         std::to_string(summary.transfers),
         std::to_string(summary.byte_difference),
         std::to_string(summary.unexplained_saved),
         std::to_string(summary.unexplained_peak),
         std::to_string(summary.large),
         fmt::format("{:.3f}", 100 * summary.saved_error),
         fmt::format("{:.3f}", 100 * summary.peak_error)});
  }
  table.print(stream);
}

Json to_json(const AccountedRun& run) {
  return {
      {"model", run.model},
      {"form", run.form},
      {"inner", run.inner},
      {"dtype", name_of(run.shape.dtype)},
      {"seq", run.shape.seq},
      {"batch", run.shape.batch},
      {"ranks", run.shape.ranks},
      {"comm", run.ghost ? "ghost" : "threads"},
      {"send_delta", run.send_delta},
      {"transfers", run.transfers},
      {"largest_byte_difference", run.byte_difference},
      {"saved_bytes", run.measured.saved},
      {"predicted_saved_bytes", run.predicted_saved},
      {"peak_bytes", run.measured.peak},
      {"predicted_peak_bytes", run.predicted_peak},
      {"failures", run.failures}};
}

void print_failures(const AccountedRun& run) {
  for (const std::string& failure : run.failures) {
    fmt::print(
        stderr,
        "laga: {} {} {} {} P={}{}: {}\n",
        run.model,
        name_of(run.shape.dtype),
        run.form,
        run.inner,
        run.shape.ranks,
        run.send_delta ? ", delta sent" : "",
        failure);
  }
}

std::vector<AccountingCase> cases_to_run(bool quick) {
  std::vector<AccountingCase> cases = accounting_cases(AccountingSweep::kOdd);
  const auto large = accounting_cases(
      quick ? AccountingSweep::kNarrow : AccountingSweep::kModels);
  cases.insert(cases.end(), large.begin(), large.end());
  return cases;
}

} // namespace

int verify_accounting(const VerifyOptions& options, const Engine& engine) {
  LAGA_CHECK(
      engine.comm() == "threads",
      "--accounting runs on threads: start it without a launcher");
  const std::vector<AccountingCase> cases = cases_to_run(options.quick);
  JsonOutput json(options.json);
  Progress progress(static_cast<int>(cases.size()));
  Summaries summaries;
  Summary all;
  Json runs = Json::array();
  for (const AccountingCase& a_case : cases) {
    progress.step(fmt::format(
        "{} {}, S {}, b {}, P {}{}",
        a_case.config.name,
        name_of(a_case.shape.dtype),
        a_case.shape.seq,
        a_case.shape.batch,
        a_case.shape.ranks,
        a_case.ghost ? ", one rank alone" : ""));
    account(a_case, [&](const AccountedRun& run) {
      summaries[{run.form, run.inner}].add(run);
      all.add(run);
      print_failures(run);
      runs.push_back(to_json(run));
    });
  }
  print_table(summaries, json.table_stream());
  fmt::print(
      json.table_stream(),
      "\n{} runs, {} failed. {} transfers, largest difference {} B. Memory of "
      "the {} runs over\n64 MiB: off by at most {:.3f} % (saved) and {:.3f} % "
      "(peak); of all runs by at most {} B.\n",
      all.runs,
      all.failed,
      all.transfers,
      all.byte_difference,
      all.large,
      100 * all.saved_error,
      100 * all.peak_error,
      std::max(all.unexplained_saved, all.unexplained_peak));
  json.write({{"schema", 1}, {"quick", options.quick}, {"runs", runs}});
  return all.failed == 0 ? kOk : kCheckFailed;
}

} // namespace laga::cli
