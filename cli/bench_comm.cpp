#include "laga/core/check.h"
#include "laga/core/parse.h"

#include <fmt/format.h>

#include <chrono>
#include <cstring>
#include <utility>

#include "cli/bench.h"
#include "cli/command.h"
#include "cli/engine.h"
#include "cli/json_output.h"
#include "cli/progress.h"
#include "cli/table.h"

namespace laga::cli {

namespace {

using Json = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

struct CommOptions {
  EngineOptions engine;
  std::vector<int64_t> sizes; // bytes that arrive at a rank
  int repeat = 9;
  std::string json;
};

/// Medians of one size, in seconds.
struct Row {
  int64_t bytes;
  double memcpy_s;
  double all_to_all_s;
  double all_gather_s;
  double barrier_s;
};

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Everybody begins together; ends when this rank is done.
template <typename Step>
double timed(Communicator& comm, const Step& step) {
  comm.barrier({Phase::kForward, "begin"});
  const auto begin = Clock::now();
  step();
  return seconds_since(begin);
}

std::vector<Part> equal_parts(const Communicator& comm, int64_t bytes) {
  const int64_t each = bytes / comm.size();
  std::vector<Part> parts;
  for (int p = 0; p < comm.size(); ++p) {
    parts.push_back({p * each, each});
  }
  return parts;
}

// The steps take turns, so that a change of the machine's speed hits all alike.
// memcpy: each rank copies, at the same time as the others, as many bytes as
// arrive at it in a collective.
Row measure(Communicator& comm, int64_t bytes, int repeat) {
  const std::vector<Part> parts = equal_parts(comm, bytes);
  const int64_t total = parts[0].bytes * comm.size();
  std::vector<std::byte> send(static_cast<size_t>(total), std::byte{1});
  std::vector<std::byte> recv(send.size());
  const ConstBytes shard(send.data(), static_cast<size_t>(parts[0].bytes));
  std::vector<double> memcpy_s, all_to_all_s, all_gather_s, barrier_s;
  for (int i = 0; i <= repeat; ++i) { // the first warms up
    const double copied = timed(
        comm, [&] { std::memcpy(recv.data(), send.data(), send.size()); });
    const double exchanged = timed(comm, [&] {
      comm.all_to_all({Phase::kForward, "bench"}, send, parts, recv, parts)
          ->wait();
    });
    const double gathered = timed(comm, [&] {
      comm.all_gather({Phase::kForward, "bench"}, shard, recv, parts)->wait();
    });
    const double met = timed(comm, [&] {
      comm.barrier({Phase::kForward, "bench"});
    });
    if (i == 0) continue;
    memcpy_s.push_back(copied);
    all_to_all_s.push_back(exchanged);
    all_gather_s.push_back(gathered);
    barrier_s.push_back(met);
  }
  return {
      total,
      median(memcpy_s),
      median(all_to_all_s),
      median(all_gather_s),
      median(barrier_s)};
}

std::string size_text(int64_t bytes) {
  if (bytes >= 1 << 20)
    return fmt::format("{:g} MiB", double(bytes) / (1 << 20));
  if (bytes >= 1 << 10)
    return fmt::format("{:g} KiB", double(bytes) / (1 << 10));
  return fmt::format("{} B", bytes);
}

void print_table(
    const std::vector<Row>& rows, const Engine& engine, std::FILE* stream) {
  fmt::print(
      stream,
      "{} ranks ({}); medians at rank 0. Bytes that arrive at a rank, its own "
      "part included.\nmemcpy: each rank copies as many at the same time.\n\n",
      engine.ranks(),
      engine.description());
  Table table(
      {{"", "bytes"},
       {"", "barrier, us"},
       {"memcpy", "us"},
       {"memcpy", "GB/s"},
       {"all_to_all", "us"},
       {"all_to_all", "GB/s"},
       {"all_to_all", "of memcpy"},
       {"all_gather", "us"},
       {"all_gather", "GB/s"},
       {"all_gather", "of memcpy"}});
  for (const Row& row : rows) {
    const auto us = [](double s) { return fmt::format("{:.0f}", s * 1e6); };
    const auto rate = [&](double s) {
      return fmt::format("{:.2f}", static_cast<double>(row.bytes) / s / 1e9);
    };
    const auto share = [&](double s) {
      return fmt::format("{:.0f} %", 100 * row.memcpy_s / s);
    };
    table.add_row(
        {size_text(row.bytes),
         us(row.barrier_s),
         us(row.memcpy_s),
         rate(row.memcpy_s),
         us(row.all_to_all_s),
         rate(row.all_to_all_s),
         share(row.all_to_all_s),
         us(row.all_gather_s),
         rate(row.all_gather_s),
         share(row.all_gather_s)});
  }
  table.print(stream);
}

Json to_json(const std::vector<Row>& rows, const Engine& engine) {
  Json list = Json::array();
  for (const Row& row : rows) {
    list.push_back(
        {{"bytes", row.bytes},
         {"memcpy_s", row.memcpy_s},
         {"all_to_all_s", row.all_to_all_s},
         {"all_gather_s", row.all_gather_s},
         {"barrier_s", row.barrier_s}});
  }
  return {
      {"schema", 1},
      {"comm", engine.comm()},
      {"ranks", engine.ranks()},
      {"sizes", std::move(list)}};
}

int bench_comm(const CommOptions& options) {
  const Engine engine(options.engine);
  LAGA_CHECK(
      engine.has_results(), "--comm ghost has nobody to exchange bytes with");
  JsonOutput json(engine.reports() ? options.json : "");
  Progress progress(static_cast<int>(options.sizes.size()), engine.reports());
  std::vector<Row> rows;
  for (const int64_t bytes : options.sizes) {
    LAGA_CHECK_GE(bytes, engine.ranks(), "--sizes: a byte for each rank");
    progress.step(size_text(bytes));
    engine.on_each_rank([&](const std::shared_ptr<Communicator>& comm) {
      const Row row = measure(*comm, bytes, options.repeat);
      if (comm->rank() == 0) rows.push_back(row);
    });
  }
  if (!engine.reports()) return kOk;
  print_table(rows, engine, json.table_stream());
  json.write(to_json(rows, engine));
  return kOk;
}

} // namespace

void add_bench_comm(CLI::App& bench, std::function<int()>& chosen) {
  auto* command = bench.add_subcommand(
      "comm",
      "Latency and bandwidth of the collectives, beside memcpy in the same "
      "run.");
  auto options = std::make_shared<CommOptions>();
  auto sizes = std::make_shared<std::string>("1k,32k,1m,32m");
  add_engine_options(*command, options->engine);
  command
      ->add_option("--sizes", *sizes, "Bytes that arrive at a rank, as 1k,32m")
      ->capture_default_str();
  command->add_option("--repeat", options->repeat, "Runs; the median counts")
      ->capture_default_str()
      ->check(CLI::Range(1, 100000));
  command->add_option(
      "--json",
      options->json,
      "Figures into FILE, or - for stdout (the table then goes to stderr)");
  command->footer("Example: laga bench comm --ranks 4 --sizes 64k,32m");
  command->callback([options, sizes, &chosen] {
    chosen = [options, sizes] {
      options->sizes = parse_counts(*sizes, "--sizes");
      return bench_comm(*options);
    };
  });
}

} // namespace laga::cli
