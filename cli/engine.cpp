#include "cli/engine.h"

#include "laga/core/check.h"

#include <fmt/format.h>

#include <thread>
#include <utility>

namespace laga::cli {

namespace {

// Ranks 0 ... k-1 on node 0, the next k on node 1, and so on.
std::vector<int> equal_nodes(int ranks, int nodes) {
  LAGA_CHECK(
      nodes >= 1 && ranks % nodes == 0,
      "--nodes must divide --ranks (",
      ranks,
      " ranks, ",
      nodes,
      " nodes)");
  std::vector<int> node_of;
  for (int rank = 0; rank < ranks; ++rank) {
    node_of.push_back(rank / (ranks / nodes));
  }
  return node_of;
}

} // namespace

Engine::Engine(EngineOptions options) : options_(std::move(options)) {
  LAGA_CHECK(
      options_.comm == "threads" || options_.comm == "ghost",
      "--comm is threads or ghost (got '",
      options_.comm,
      "')");
  LAGA_CHECK(
      options_.comm == "ghost" || options_.ranks <= 1024,
      "--ranks: at most 1024 threads (got ",
      options_.ranks,
      ")");
  LAGA_CHECK(
      options_.ghost_rank >= 0 && options_.ghost_rank < options_.ranks,
      "--ghost-rank ",
      options_.ghost_rank,
      " of ",
      options_.ranks,
      " ranks");
  node_of_ = equal_nodes(options_.ranks, options_.nodes);
}

std::string Engine::description() const {
  const unsigned cores = std::thread::hardware_concurrency();
  if (options_.comm == "ghost") {
    return fmt::format("rank {} alone on {} cores", options_.ghost_rank, cores);
  }
  return fmt::format("threads, {} cores", cores);
}

std::optional<LayerInputs> Engine::make_inputs(
    const MlaConfig& config, const RunShape& shape, uint64_t seed) const {
  if (!has_results()) return std::nullopt;
  return laga::make_inputs(config, shape.seq, shape.batch, shape.dtype, seed);
}

std::optional<LayerRun> Engine::run(
    const LayerTask& task,
    const std::optional<LayerInputs>& inputs,
    uint64_t seed) const {
  if (options_.comm == "ghost") {
    return run_ghost(task, seed, options_.ghost_rank, node_of_);
  }
  return run_on_threads(task, *inputs, {options_.deadline_s, node_of_});
}

void add_engine_options(CLI::App& command, EngineOptions& options) {
  command
      .add_option(
          "--comm",
          options.comm,
          "threads: ranks are threads of this process; ghost: one rank alone "
          "(bytes, memory and time, no results)")
      ->capture_default_str();
  command
      .add_option("--ranks", options.ranks, "Ranks the sequence is split over")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 20));
  command
      .add_option(
          "--nodes",
          options.nodes,
          "Pretend that the ranks sit on so many nodes: counts bytes across "
          "them, and sums node by node")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 20));
  command
      .add_option("--ghost-rank", options.ghost_rank, "Which rank the ghost is")
      ->capture_default_str()
      ->check(CLI::Range(0, (1 << 20) - 1));
  command
      .add_option(
          "--deadline",
          options.deadline_s,
          "Seconds a rank waits for the others")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
}

} // namespace laga::cli
