#include "laga/core/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "cli/compare.h"
#include "cli/plan.h"
#include "cli/table.h"
#include "cli/tape_report.h"

namespace laga::cli {

namespace {

using Json = nlohmann::ordered_json;

std::string mb(int64_t bytes) {
  return fmt::format("{:.1f}", static_cast<double>(bytes) * 1e-6);
}
std::string gb(double bytes) {
  return fmt::format("{:.2f}", bytes * 1e-9);
}
std::string ms(double seconds) {
  return fmt::format("{:.2f}", seconds * 1e3);
}

// "128k", "1m", "1000"
std::string count(double number) {
  const auto whole = static_cast<int64_t>(number);
  if (whole >= 1 << 20 && whole % (1 << 20) == 0)
    return fmt::format("{}m", whole >> 20);
  if (whole >= 1024 && whole % 1024 == 0)
    return fmt::format("{}k", whole >> 10);
  return std::to_string(whole);
}

double flops(const PlanRow& row) {
  return flops_in(row.work, Phase::kForward) +
         flops_in(row.work, Phase::kBackward);
}

// Of all floating-point operations, what is more than the least of all rows.
std::string extra_flops(const PlanReport& report, const PlanRow& row) {
  double least = flops(row);
  for (const PlanRow& other : report.rows) {
    if (other.why_not.empty()) least = std::min(least, flops(other));
  }
  return fmt::format("{:+.1f}", 100 * (flops(row) / least - 1));
}

void print_header(const PlanReport& report, std::FILE* stream) {
  const PlanQuery& q = report.options.query;
  fmt::print(
      stream,
      "{}   sequence {}  batch {}  ranks {}{}  {}  {}  layers {}{}\n",
      q.config.name,
      count(static_cast<double>(q.shape.seq)),
      q.shape.batch,
      q.shape.ranks,
      q.tp > 1 ? fmt::format(" x {} tensor-parallel", q.tp) : "",
      name_of(q.shape.dtype),
      q.causal ? "causal" : "full",
      q.layers,
      q.send_delta ? "  delta sent" : "");
  fmt::print(
      stream, "{}: {}\n\n", report.system.name, report.system.description);
}

void print_table_of(const PlanReport& report, std::FILE* stream) {
  Table table(
      {{"", "form", true},
       {"", "inner", true},
       {"", "", true},
       {"sent by a rank and layer, MB", "forward"},
       {"sent by a rank and layer, MB", "backward"},
       {"sent by a rank and layer, MB", "to other nodes"},
       {"sent by a rank and layer, MB", "payload"},
       {"memory of a rank, GB", "saved"},
       {"memory of a rank, GB", "transient"},
       {"memory of a rank, GB", "weights"},
       {"memory of a rank, GB", "all"},
       {"", "extra FLOPs, %"},
       {"time of a layer, ms", "computing"},
       {"time of a layer, ms", "exposed"},
       {"time of a layer, ms", "sum"},
       {"", "limited by", true}});
  const auto layers = static_cast<double>(report.options.query.layers);
  for (const PlanRow* row : by_time(report.rows)) {
    if (!row->why_not.empty()) continue;
    const PhaseBytes forward = bytes_in(row->transfers, Phase::kForward);
    const PhaseBytes backward = bytes_in(row->transfers, Phase::kBackward);
    const auto saved = static_cast<double>(row->tape.saved_bytes());
    table.add_row(
        {row->form,
         row->inner,
         row == recommended(report.rows) ? "<-- take"
         : row->runs                     ? ""
                                         : "(planned only)",
         mb(forward.sent),
         mb(backward.sent),
         mb(forward.across_nodes + backward.across_nodes),
         mb(forward.payload + backward.payload),
         gb(layers * saved),
         gb(static_cast<double>(row->tape.peak_bytes()) - saved),
         gb(layers * 2 * static_cast<double>(row->weight_bytes)),
         gb(row->memory),
         extra_flops(report, *row),
         ms(row->seconds.computing()),
         ms(row->seconds.exposed),
         ms(row->seconds.total()),
         row->limit});
  }
  table.print(stream);
  for (const PlanRow& row : report.rows) {
    if (!row.why_not.empty())
      fmt::print(stream, "{}: no, {}\n", row.name(), row.why_not);
  }
}

void print_flips(const PlanReport& report, std::FILE* stream) {
  for (const Flip& flip : report.flips) {
    const bool factor = flip.what.rfind("bandwidth", 0) == 0;
    fmt::print(
        stream,
        "  with {} {}: {}\n",
        flip.what,
        factor ? fmt::format("x {}", flip.value) : "= " + count(flip.value),
        flip.to);
  }
}

Json phase_json(const std::vector<Transfer>& transfers, Phase phase) {
  const PhaseBytes bytes = bytes_in(transfers, phase);
  Json list = Json::array();
  for (const Transfer& transfer : transfers) {
    if (transfer.phase != phase) continue;
    list.push_back(
        {{"name", transfer.name},
         {"op", transfer.op},
         {"bytes_sent", transfer.bytes_sent},
         {"bytes_sent_across_nodes", transfer.bytes_sent_across_nodes}});
  }
  return {
      {"bytes_sent", bytes.sent},
      {"bytes_sent_across_nodes", bytes.across_nodes},
      {"payload_bytes", bytes.payload},
      {"transfers", std::move(list)}};
}

Json row_json(const PlanRow& row) {
  Json json{{"form", row.form}, {"inner", row.inner}, {"runs", row.runs}};
  if (!row.why_not.empty()) {
    json["why_not"] = row.why_not;
    return json;
  }
  json["forward"] = phase_json(row.transfers, Phase::kForward);
  json["backward"] = phase_json(row.transfers, Phase::kBackward);
  json["memory_bytes"] = {
      {"saved", row.tape.saved_bytes()},
      {"peak", row.tape.peak_bytes()},
      {"weights", row.weight_bytes},
      {"all", row.memory}};
  json["flops"] = {
      {"forward", flops_in(row.work, Phase::kForward)},
      {"backward", flops_in(row.work, Phase::kBackward)},
      {"redundant", redundant_flops(row.work)}};
  json["time_s"] = {
      {"projections", row.seconds.gemms},
      {"attention", row.seconds.attention},
      {"memory_traffic", row.seconds.touching},
      {"communication", row.seconds.communication},
      {"exposed", row.seconds.exposed},
      {"total", row.seconds.total()}};
  json["fits"] = row.fits;
  json["limited_by"] = row.limit;
  return json;
}

} // namespace

std::vector<const PlanRow*> by_time(const std::vector<PlanRow>& rows) {
  const PlanRow* best = recommended(rows);
  std::vector<const PlanRow*> sorted;
  for (const PlanRow& row : rows)
    sorted.push_back(&row);
  std::stable_sort(
      sorted.begin(), sorted.end(), [&](const PlanRow* a, const PlanRow* b) {
        if (a == best || b == best) return a == best && b != best;
        return a->seconds.total() < b->seconds.total();
      });
  return sorted;
}

std::string recommendation(const std::vector<PlanRow>& rows) {
  const PlanRow* best = recommended(rows);
  if (best == nullptr)
    return "None of the forms that laga runs fits these ranks and their "
           "memory.";
  const PlanRow* second = nullptr;
  for (const PlanRow* row : by_time(rows)) {
    const bool other = row != best && row->runs && row->why_not.empty() &&
                       row->form != best->form;
    if (other &&
        (second == nullptr || row->seconds.total() < second->seconds.total())) {
      second = row;
    }
  }
  const auto sent = [](const PlanRow& row) {
    return static_cast<double>(
        bytes_in(row.transfers, Phase::kForward).sent +
        bytes_in(row.transfers, Phase::kBackward).sent);
  };
  std::string text = fmt::format(
      "Take {}: {} ms a layer, {} GB a rank",
      best->name(),
      ms(best->seconds.total()),
      gb(best->memory));
  if (second == nullptr) return text + "; no other form can be used.";
  text += fmt::format(
      "; {} takes {:.2f}x as long{}",
      second->name(),
      second->seconds.total() / best->seconds.total(),
      second->fits ? "" : " and does not fit");
  if (sent(*best) > 0) {
    text += fmt::format(
        ", sends {:.2f}x as much and saves {:.2f}x as much",
        sent(*second) / sent(*best),
        static_cast<double>(second->tape.saved_bytes()) /
            static_cast<double>(best->tape.saved_bytes()));
  }
  return text + ".";
}

void print_plan(const PlanReport& report, std::FILE* stream) {
  print_header(report, stream);
  print_table_of(report, stream);
  fmt::print(stream, "\n{}\n", recommendation(report.rows));
  print_flips(report, stream);
  fmt::print(
      stream,
      "\nBytes to other nodes and payload (a gathered shard once) are of both "
      "directions. Bytes and\nmemory are exact for what laga runs; on a GPU, "
      "kernels without scratch are assumed. \"all\" is\nsaved and weights "
      "of all layers (weights and their gradients), the transient of one, and\n"
      "--other-bytes. Time is computed from the rates of {}; of rows within 1 "
      "%, "
      "the one with\nthe least memory is taken.\n",
      report.system.name);
}

void print_breakdown(const PlanReport& report, std::FILE* stream) {
  std::string known;
  for (const PlanRow& row : report.rows) {
    if (!row.why_not.empty()) continue;
    if (row.name() == report.options.breakdown) {
      print_header(report, stream);
      fmt::print(stream, "{}\n", row.name());
      print_tape(
          row.tape, row.tape.forward_end, "saved until the backward", stream);
      print_tape(row.tape, row.tape.peak(), "at the peak", stream);
      return;
    }
    known += (known.empty() ? "" : ", ") + row.name();
  }
  throw InvalidArgument(detail::concat(
      "[plan] --breakdown: no row '",
      report.options.breakdown,
      "'. Rows: ",
      known));
}

Json plan_json(const PlanOptions& options, const std::vector<PlanRow>& rows) {
  const PlanQuery& q = options.query;
  const PlanRow* best = recommended(rows);
  Json list = Json::array();
  for (const PlanRow& row : rows)
    list.push_back(row_json(row));
  return {
      {"schema", 1},
      {"model", q.config.name},
      {"system", options.system},
      {"seq", q.shape.seq},
      {"batch", q.shape.batch},
      {"ranks", q.shape.ranks},
      {"tp", q.tp},
      {"dtype", name_of(q.shape.dtype)},
      {"layers", q.layers},
      {"recommended", best ? Json(best->name()) : Json(nullptr)},
      {"rows", std::move(list)}};
}

} // namespace laga::cli
