
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "cli/compare.h"
#include "cli/table.h"
#include "cli/tape_report.h"

namespace laga::cli {

namespace {

using Json = nlohmann::ordered_json;

std::string mib(int64_t bytes) {
  return fmt::format("{:.2f}", static_cast<double>(bytes) / (1 << 20));
}

double tokens_per_s(const Comparison& comparison, const FormFigures& form) {
  return static_cast<double>(
             comparison.options.seq * comparison.options.batch) /
         (form.seconds.forward + form.seconds.backward);
}

double output_error(const FormFigures& form) {
  for (const NamedError& error : form.errors) {
    if (error.name == "output") return error.relative;
  }
  return 0;
}

// "grad.kv_b_proj.weight" -> "kv_b_proj"
std::string short_name(std::string name) {
  for (const char* part : {"grad.", ".weight"}) {
    const size_t at = name.find(part);
    if (at != std::string::npos) name.erase(at, std::string(part).size());
  }
  return name;
}

const FormFigures* find(const Comparison& comparison, const char* name) {
  for (const FormFigures& form : comparison.forms) {
    if (form.form == name) return &form;
  }
  return nullptr;
}

void print_header(const Comparison& comparison, std::FILE* stream) {
  const MlaConfig& c = comparison.config;
  const CompareOptions& o = comparison.options;
  fmt::print(
      stream,
      "{} attention   hidden {}  heads {}  latent {}+{}  head {}+{}/{}  q "
      "latent {}\n",
      c.name,
      c.hidden_size,
      c.num_heads,
      c.kv_lora_rank,
      c.qk_rope_head_dim,
      c.qk_nope_head_dim,
      c.qk_rope_head_dim,
      c.v_head_dim,
      c.q_lora_rank == 0 ? "none" : std::to_string(c.q_lora_rank));
  fmt::print(
      stream,
      "sequence {}  batch {}  ranks {} ({})  {}  {}  seed {}{}\n",
      o.seq,
      o.batch,
      o.engine.ranks,
      comparison.ranks_are,
      name_of(o.dtype),
      o.causal ? "causal" : "full",
      o.seed,
      o.send_delta ? "  delta sent" : "");
  if (o.reference) {
    fmt::print(
        stream,
        "reference: one rank, plain autograd, {}\n",
        o.dtype == Dtype::kBf16 ? "fp32" : "fp64");
  }
  fmt::print(stream, "\n");
}

std::vector<std::string> cells(
    const Comparison& comparison, const FormFigures& form) {
  const PhaseBytes forward = bytes_in(form.measured, Phase::kForward);
  const PhaseBytes backward = bytes_in(form.measured, Phase::kBackward);
  const bool predicted = differences(form.predicted, form.measured).empty();
  std::vector<std::string> row{
      form.form,
      form.inner,
      fmt::format("{:.2f}", form.seconds.forward),
      fmt::format("{:.2f}", form.seconds.backward),
      fmt::format("{:.0f}", tokens_per_s(comparison, form)),
      mib(forward.sent),
      mib(backward.sent),
      predicted ? "yes" : "NO",
      mib(forward.payload)};
  if (comparison.nodes > 1) {
    row.push_back(mib(forward.across_nodes));
  }
  row.push_back(mib(form.memory.saved));
  row.push_back(mib(form.memory.peak));
  if (!form.errors.empty()) {
    const NamedError worst = worst_gradient(form.errors);
    row.push_back(fmt::format("{:.1e}", output_error(form)));
    row.push_back(fmt::format("{:.1e}", worst.relative));
    row.push_back(short_name(worst.name));
  }
  return row;
}

void print_weight_gradients(const Comparison& comparison, std::FILE* stream) {
  if (comparison.options.engine.ranks == 1) return;
  fmt::print(stream, "Weight gradients, once a step, MiB sent by a rank:");
  std::string last;
  for (const FormFigures& form : comparison.forms) {
    if (form.form == std::exchange(last, form.form)) continue;
    fmt::print(
        stream,
        " {} {}",
        form.form,
        mib(bytes_in(form.measured, Phase::kWeightGradients).sent));
  }
  fmt::print(
      stream,
      ".\n(Where the latent travels, kv_b's rows have one owner each and are "
      "gathered, not summed.)\n");
}

void print_ratio(const Comparison& comparison, std::FILE* stream) {
  const FormFigures* laga = find(comparison, "laga");
  const FormFigures* full = find(comparison, "explicit");
  if (laga == nullptr || full == nullptr ||
      comparison.options.engine.ranks == 1) {
    return;
  }
  const auto sent = [](const FormFigures& form) {
    return static_cast<double>(bytes_in(form.measured, Phase::kForward).sent);
  };
  const double ratio = sent(*full) / sent(*laga);
  fmt::print(
      stream,
      "LAGA sends {:.2f}x {} than Explicit. Ranks of one machine share memory, "
      "so this shows in bytes,\nnot in time.\n",
      std::max(ratio, 1 / ratio),
      ratio >= 1 ? "less" : "more");
}

Json phase_json(const FormFigures& form, Phase phase) {
  const PhaseBytes measured = bytes_in(form.measured, phase);
  Json transfers = Json::array();
  for (const Transfer& transfer : form.measured) {
    if (transfer.phase != phase) continue;
    Json entry{
        {"name", transfer.name},
        {"op", transfer.op},
        {"bytes_sent", transfer.bytes_sent},
        {"bytes_predicted", nullptr}};
    for (const Transfer& predicted : form.predicted) {
      if (predicted.phase == phase && predicted.name == transfer.name) {
        entry["bytes_predicted"] = predicted.bytes_sent;
      }
    }
    transfers.push_back(std::move(entry));
  }
  return {
      {"bytes_sent", measured.sent},
      {"bytes_predicted", bytes_in(form.predicted, phase).sent},
      {"bytes_sent_across_nodes", measured.across_nodes},
      {"payload_bytes", measured.payload},
      {"transfers", std::move(transfers)}};
}

Json form_json(const Comparison& comparison, const FormFigures& form) {
  Json errors = Json::object();
  for (const NamedError& error : form.errors) {
    errors[error.name] = error.relative;
  }
  return {
      {"form", form.form},
      {"inner", form.inner},
      {"time_s",
       {{"forward", form.seconds.forward},
        {"backward", form.seconds.backward},
        {"weight_gradients", form.seconds.weight_gradients},
        {"waiting", form.seconds.waiting}}},
      {"tokens_per_s", tokens_per_s(comparison, form)},
      {"forward", phase_json(form, Phase::kForward)},
      {"backward", phase_json(form, Phase::kBackward)},
      {"weight_gradients", phase_json(form, Phase::kWeightGradients)},
      {"memory_bytes",
       {{"saved", form.memory.saved},
        {"peak", form.memory.peak},
        {"predicted_saved", form.tape.saved_bytes()},
        {"predicted_peak", form.tape.peak_bytes()},
        {"weights", form.memory.weights},
        {"weight_gradients", form.memory.weight_gradients}}},
      {"relative_error", form.errors.empty() ? Json(nullptr) : errors},
      {"digest",
       form.output_digest.empty() ? Json(nullptr)
                                  : Json{
                                        {"output", form.output_digest},
                                        {"gradients", form.gradients_digest}}}};
}

} // namespace

PhaseBytes bytes_in(const std::vector<Transfer>& transfers, Phase phase) {
  PhaseBytes bytes;
  for (const Transfer& transfer : transfers) {
    if (transfer.phase != phase) continue;
    bytes.sent += transfer.bytes_sent;
    bytes.across_nodes += transfer.bytes_sent_across_nodes;
    bytes.payload += transfer.payload_bytes;
  }
  return bytes;
}

void print_table(const Comparison& comparison, std::FILE* stream) {
  print_header(comparison, stream);
  std::vector<Table::Column> columns{
      {"", "form", true},
      {"", "inner", true},
      {"time, s", "forward"},
      {"time, s", "backward"},
      {" ", "tokens/s"},
      {"sent by a rank, MiB", "forward"},
      {"sent by a rank, MiB", "backward"},
      {"sent by a rank, MiB", "=predicted"},
      {"sent by a rank, MiB", "payload"}};
  if (comparison.nodes > 1) {
    columns.push_back({"sent by a rank, MiB", "to other nodes"});
  }
  columns.push_back({"memory, MiB", "saved"});
  columns.push_back({"memory, MiB", "peak"});
  if (comparison.options.reference) {
    columns.push_back({"relative error", "output"});
    columns.push_back({"relative error", "worst gradient"});
    columns.push_back({"relative error", "", true});
  }
  Table table(std::move(columns));
  for (const FormFigures& form : comparison.forms) {
    table.add_row(cells(comparison, form));
  }
  table.print(stream);
  fmt::print(stream, "\n");
  fmt::print(
      stream,
      "Memory of a rank above weights ({} MiB) and weight gradients (as much): "
      "saved until the backward,\nand the peak over both. ",
      mib(comparison.forms.front().memory.weights));
  fmt::print(stream, "Payload counts a gathered shard once.\n");
  print_weight_gradients(comparison, stream);
  print_ratio(comparison, stream);
}

void print_tapes(const Comparison& comparison, std::FILE* stream) {
  for (const FormFigures& form : comparison.forms) {
    const auto unexplained = [](int64_t measured, int64_t predicted) {
      return fmt::format("unexplained {} B", measured - predicted);
    };
    fmt::print(stream, "\n{} {}\n", form.form, form.inner);
    print_tape(
        form.tape,
        form.tape.forward_end,
        "saved until the backward, " +
            unexplained(form.memory.saved, form.tape.saved_bytes()),
        stream);
    print_tape(
        form.tape,
        form.tape.peak(),
        "at the peak, " + unexplained(form.memory.peak, form.tape.peak_bytes()),
        stream);
  }
}

nlohmann::ordered_json json_document(const Comparison& comparison) {
  const CompareOptions& o = comparison.options;
  Json forms = Json::array();
  for (const FormFigures& form : comparison.forms) {
    forms.push_back(form_json(comparison, form));
  }
  return {
      {"schema", 1},
      {"model", comparison.config.name},
      {"seq", o.seq},
      {"batch", o.batch},
      {"ranks", o.engine.ranks},
      {"dtype", name_of(o.dtype)},
      {"inner", o.inner},
      {"comm", o.engine.comm},
      {"nodes", comparison.nodes},
      {"seed", o.seed},
      {"weights", o.weights.empty() ? Json(nullptr) : Json(o.weights)},
      {"repeat", o.repeat},
      {"causal", o.causal},
      {"send_delta", o.send_delta},
      {"forms", std::move(forms)}};
}

} // namespace laga::cli
