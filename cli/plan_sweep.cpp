#include "laga/core/check.h"
#include "laga/core/parse.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "cli/command.h"
#include "cli/compare.h"
#include "cli/json_output.h"
#include "cli/plan.h"

namespace laga::cli {

namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kMust =
    "[plan] --sweep: seq=4k..1m,ranks=2..128 or one of the two (got '";

// "4k..1m": 4k, 8k, ..., 1m
std::vector<int64_t> doubled(
    const std::string& range, const std::string& what) {
  const size_t dots = range.find("..");
  const int64_t from = parse_count(range.substr(0, dots), what);
  const int64_t to = dots == std::string::npos
                         ? from
                         : parse_count(range.substr(dots + 2), what);
  LAGA_CHECK_GE(to, from, "the end of --sweep ", what);
  std::vector<int64_t> values;
  for (int64_t value = from; value <= to; value *= 2)
    values.push_back(value);
  return values;
}

struct Sweep {
  std::vector<int64_t> seq, ranks;
};

Sweep parse_sweep(const PlanOptions& options) {
  const std::string& text = options.sweep;
  Sweep sweep{{options.query.shape.seq}, {options.query.shape.ranks}};
  for (size_t begin = 0; begin <= text.size();) {
    const size_t comma = std::min(text.find(',', begin), text.size());
    const std::string part = text.substr(begin, comma - begin);
    const size_t equals = part.find('=');
    const std::string name = part.substr(0, equals);
    if (equals == std::string::npos || (name != "seq" && name != "ranks"))
      throw InvalidArgument(detail::concat(kMust, text, "')"));
    (name == "seq" ? sweep.seq : sweep.ranks) =
        doubled(part.substr(equals + 1), name);
    begin = comma + 1;
  }
  LAGA_CHECK(sweep.ranks.back() <= 65536, "--sweep: ranks are at most 65536");
  return sweep;
}

void print_csv(const PlanOptions& options, const std::vector<PlanRow>& rows) {
  const RunShape& shape = options.query.shape;
  const PlanRow* best = recommended(rows);
  for (const PlanRow& row : rows) {
    if (!row.why_not.empty()) continue;
    const PhaseBytes forward = bytes_in(row.transfers, Phase::kForward);
    const PhaseBytes backward = bytes_in(row.transfers, Phase::kBackward);
    fmt::print(
        "{},{},{},{},{},{},{},{},{},{},{:.0f},{:.6g},{:.6g},{:.6g},{}\n",
        shape.seq,
        shape.ranks,
        row.form,
        row.inner.empty() ? "-" : "\"" + row.inner + "\"",
        row.runs ? 1 : 0,
        forward.sent,
        backward.sent,
        forward.across_nodes + backward.across_nodes,
        row.tape.saved_bytes(),
        row.tape.peak_bytes(),
        row.memory,
        row.seconds.computing(),
        row.seconds.exposed,
        row.seconds.total(),
        &row == best ? 1 : 0);
  }
}

} // namespace

int run_sweep(const PlanOptions& options, const System& system) {
  const Sweep sweep = parse_sweep(options);
  JsonOutput json(options.json);
  if (options.json.empty()) {
    fmt::print(
        "seq,ranks,form,inner,runs,bytes_forward,bytes_backward,"
        "bytes_across_nodes,saved_bytes,peak_bytes,memory_bytes,computing_s,"
        "exposed_s,total_s,recommended\n");
  }
  Json points = Json::array();
  for (const int64_t seq : sweep.seq) {
    for (const int64_t ranks : sweep.ranks) {
      if (seq % ranks != 0) continue;
      PlanOptions point = options;
      point.query.shape.seq = seq;
      point.query.shape.ranks = static_cast<int>(ranks);
      const std::vector<PlanRow> rows = make_plan(point.query, system);
      if (options.json.empty()) {
        print_csv(point, rows);
      } else {
        points.push_back(plan_json(point, rows));
      }
    }
  }
  json.write({{"schema", 1}, {"points", points}});
  return kOk;
}

} // namespace laga::cli
