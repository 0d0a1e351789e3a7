// `laga bench attention`: the inner attention by itself, against ATen's and
// against what the machine could do.
#include "laga/comm/mpi/mpi.h"
#include "laga/core/check.h"
#include "laga/core/parse.h"
#include "laga/measure/attention_bench.h"

#include <ATen/Parallel.h>

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/bench.h"
#include "cli/command.h"
#include "cli/json_output.h"
#include "cli/progress.h"
#include "cli/table.h"

namespace laga::cli {

namespace {

using Json = nlohmann::ordered_json;

struct Options {
  std::string model = "deepseek-v3";
  std::string seq = "4k", dtype = "bf16";
  int64_t heads = 8;
  int threads = 0; // 0: as many as torch would take
  int repeat = 5;
  uint64_t seed = 0;
  bool full = false, latent = false;
  std::string json;
};

struct Row {
  Contender contender;
  std::vector<double> forward_s, backward_s, sum_s;
};

struct Bench {
  Options options;
  AttentionProblem problem;
  std::vector<Row> rows; // the first is ours
  std::vector<double> peak_flops_per_s;
  std::vector<double> alone_flops_per_s;
  std::vector<double> clock_hz;
  MachinePeak machine;

  double peak() const {
    return median(peak_flops_per_s);
  }
};

AttentionProblem problem_of(const Options& options) {
  AttentionProblem problem{
      load_config(options.model),
      parse_count(options.seq, "--seq"),
      options.heads,
      parse_dtype(options.dtype),
      !options.full,
      options.seed};
  require_computable(problem.config);
  LAGA_CHECK(
      !launched_by_mpi(), "bench attention is one rank: no launcher, please");
  return problem;
}

// The math path holds four buffers of scores in fp32 (scores, masked scores,
// softmax and a gradient) and their roundings.
bool math_fits(const AttentionProblem& p) {
  const auto seq = static_cast<double>(p.seq);
  const double wide = p.dtype == Dtype::kFp64 ? 8 : 4;
  const double needed = 6 * wide * seq * seq * static_cast<double>(p.heads);
  return needed < available_memory();
}

double seconds_of(const std::function<void()>& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  const std::chrono::duration<double> taken =
      std::chrono::steady_clock::now() - start;
  return taken.count();
}

// Contenders and the machine's peak take turns, so that a change of its speed
// hits all alike. The first round warms up.
void measure(Bench& bench) {
  const Options& o = bench.options;
  Progress progress(o.repeat + 1);
  for (int round = 0; round <= o.repeat; ++round) {
    progress.step(
        round == 0 ? "warm-up" : fmt::format("run {} of {}", round, o.repeat));
    bench.machine = measure_peak(bench.problem.dtype, o.threads);
    for (Row& row : bench.rows) {
      const double forward = seconds_of(row.contender.forward);
      const double backward = seconds_of(row.contender.backward);
      if (round == 0) continue;
      row.forward_s.push_back(forward);
      row.backward_s.push_back(backward);
      row.sum_s.push_back(forward + backward);
    }
    if (round == 0) continue;
    bench.peak_flops_per_s.push_back(bench.machine.flops_per_s);
    bench.alone_flops_per_s.push_back(bench.machine.flops_per_s_alone);
    bench.clock_hz.push_back(bench.machine.clock_hz);
  }
}

double rate(double flops, const std::vector<double>& seconds) {
  return flops / median(seconds);
}

// Of the same run: how many times as long as the first row, median of pairs.
double ratio(
    const std::vector<double>& seconds, const std::vector<double>& ours) {
  std::vector<double> ratios;
  for (size_t i = 0; i < ours.size(); ++i)
    ratios.push_back(seconds[i] / ours[i]);
  return median(ratios);
}

// Multiply-adds a cycle at the measured clock, of one thread by itself.
double per_cycle_alone(const Bench& bench) {
  return median(bench.alone_flops_per_s) / median(bench.clock_hz) /
         bench.machine.flops_per_instruction;
}
// How many it can start each cycle: what the loop comes nearest to.
double units(const Bench& bench) {
  return std::max(1.0, std::round(per_cycle_alone(bench)));
}
// Of what all threads could do if each had these units to itself.
double share_of_clock(const Bench& bench) {
  return bench.peak() / bench.options.threads / median(bench.clock_hz) /
         bench.machine.flops_per_instruction / units(bench);
}

void print_header(const Bench& bench, std::FILE* stream) {
  const AttentionProblem& p = bench.problem;
  const MlaConfig& c = p.config;
  fmt::print(
      stream,
      "{} attention   head {}+{}/{}  {} heads  sequence {}  {}  {}  {} "
      "thread{}  {} runs in turns, medians\n",
      c.name,
      c.qk_nope_head_dim,
      c.qk_rope_head_dim,
      c.v_head_dim,
      p.heads,
      p.seq,
      p.causal ? "causal" : "full",
      name_of(p.dtype),
      bench.options.threads,
      bench.options.threads == 1 ? "" : "s",
      bench.options.repeat);
  fmt::print(
      stream,
      "instruction set {}  peak {:.0f} GF/s by multiply-adds on registers = "
      "{:.0f} % of {} x {:.0f} a cycle at {:.2f} GHz (one thread alone: {:.0f} "
      "%)\n",
      bench.machine.isa,
      bench.peak() / 1e9,
      100 * share_of_clock(bench),
      bench.options.threads,
      units(bench),
      median(bench.clock_hz) / 1e9,
      100 * per_cycle_alone(bench) / units(bench));
  if (share_of_clock(bench) < 0.95) {
    fmt::print(
        stream,
        "Below 95 %: the threads share a core's units, other work runs, or the "
        "clock falls under load.\n");
  }
  fmt::print(stream, "\n");
}

void print(const Bench& bench, std::FILE* stream) {
  print_header(bench, stream);
  const double forward = useful_flops_forward(bench.problem);
  const double backward = useful_flops_backward(bench.problem);
  Table table(
      {{"", "", true},
       {"forward", "s"},
       {"forward", "GF/s"},
       {"forward", "% of peak"},
       {"backward", "s"},
       {"backward", "GF/s"},
       {"backward", "% of peak"},
       {"time, ours = 1", "forward"},
       {"time, ours = 1", "backward"},
       {"time, ours = 1", "sum"}});
  const Row& ours = bench.rows.front();
  for (const Row& row : bench.rows) {
    const double f = rate(forward, row.forward_s);
    const double b = rate(backward, row.backward_s);
    table.add_row(
        {row.contender.name,
         fmt::format("{:.4f}", median(row.forward_s)),
         fmt::format("{:.0f}", f / 1e9),
         fmt::format("{:.1f}", 100 * f / bench.peak()),
         fmt::format("{:.4f}", median(row.backward_s)),
         fmt::format("{:.0f}", b / 1e9),
         fmt::format("{:.1f}", 100 * b / bench.peak()),
         fmt::format("{:.3f}x", ratio(row.forward_s, ours.forward_s)),
         fmt::format("{:.3f}x", ratio(row.backward_s, ours.backward_s)),
         fmt::format("{:.3f}x", ratio(row.sum_s, ours.sum_s))});
  }
  table.print(stream);
  fmt::print(
      stream,
      "\nGF/s of useful work: 2 (qk + v) forward and 2 (3 qk + 2 v) backward a "
      "head and visible pair;\npadding, masked pairs and the up-projection are "
      "time, not work. Ratios: medians over runs.\n");
}

Json json_document(const Bench& bench) {
  const AttentionProblem& p = bench.problem;
  Json rows = Json::array();
  const Row& ours = bench.rows.front();
  for (const Row& row : bench.rows) {
    rows.push_back(
        {{"name", row.contender.name},
         {"forward_s", row.forward_s},
         {"backward_s", row.backward_s},
         {"forward_flops_per_s", rate(useful_flops_forward(p), row.forward_s)},
         {"backward_flops_per_s",
          rate(useful_flops_backward(p), row.backward_s)},
         {"forward_ratio", ratio(row.forward_s, ours.forward_s)},
         {"backward_ratio", ratio(row.backward_s, ours.backward_s)},
         {"sum_ratio", ratio(row.sum_s, ours.sum_s)}});
  }
  return {
      {"schema", 1},
      {"model", p.config.name},
      {"seq", p.seq},
      {"heads", p.heads},
      {"dtype", name_of(p.dtype)},
      {"causal", p.causal},
      {"latent", bench.options.latent},
      {"threads", bench.options.threads},
      {"repeat", bench.options.repeat},
      {"isa", bench.machine.isa},
      {"peak_flops_per_s", bench.peak()},
      {"peak_flops_per_s_one_thread", median(bench.alone_flops_per_s)},
      {"clock_hz", median(bench.clock_hz)},
      {"peak_share_of_clock", share_of_clock(bench)},
      {"rows", std::move(rows)}};
}

int bench_attention(Options options) {
  Bench bench{{}, problem_of(options), {}, {}, {}, {}, {}};
  JsonOutput json(options.json);
  if (options.threads > 0) at::set_num_threads(options.threads);
  options.threads = at::get_num_threads();
  bench.options = options;
  const bool math = !options.latent && math_fits(bench.problem);
  if (!math && !options.latent)
    fmt::print(stderr, "laga: ATen math is left out: its scores do not fit\n");
  for (Contender& contender : options.latent
                                  ? latent_contenders(bench.problem)
                                  : attention_contenders(bench.problem, math)) {
    bench.rows.push_back({std::move(contender), {}, {}, {}});
  }
  measure(bench);
  print(bench, json.table_stream());
  json.write(json_document(bench));
  return kOk;
}

} // namespace

void add_bench_attention(CLI::App& bench, std::function<int()>& chosen) {
  auto* command = bench.add_subcommand(
      "attention",
      "Our attention kernels against ATen's and against this machine's peak, "
      "one rank.");
  auto options = std::make_shared<Options>();
  command
      ->add_option(
          "--model",
          options->model,
          "Preset (laga info lists them) or path of a Hugging Face "
          "config.json: "
          "widths")
      ->capture_default_str();
  command->add_option("--seq", options->seq, "Tokens")->capture_default_str();
  command->add_option("--heads", options->heads, "Heads")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 20));
  command->add_option("--dtype", options->dtype, "bf16, fp32 or fp64")
      ->capture_default_str();
  command->add_option("--threads", options->threads, "Default: all cores")
      ->check(CLI::Range(1, 1024));
  command
      ->add_option(
          "--repeat", options->repeat, "Runs of each, in turns, after one more")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000));
  command->add_option("--seed", options->seed, "Of the inputs")
      ->capture_default_str();
  command->add_flag("--full", options->full, "Full attention, not causal");
  command->add_flag(
      "--latent",
      options->latent,
      "LAGA's part instead: up-projection and attention, in one or apart");
  command->add_option(
      "--json",
      options->json,
      "All figures into FILE, or - for stdout (the table then goes to stderr)");
  command->footer(
      "Example: laga bench attention --seq 1k --heads 16 --dtype fp32\n"
      "LAGA_ISA=ref|portable|avx512|avx512_bf16 chooses the instruction set.");
  command->callback([options, &chosen] {
    chosen = [options] { return bench_attention(*options); };
  });
}

} // namespace laga::cli
