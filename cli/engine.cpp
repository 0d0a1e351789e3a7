#include "cli/engine.h"

#include "laga/comm/mpi/mpi.h"
#include "laga/comm/threads/threads.h"
#include "laga/core/check.h"

#include <ATen/Parallel.h>

#include <fmt/format.h>

#include <algorithm>
#include <thread>
#include <utility>

namespace laga::cli {

namespace {

// Ranks 0 ... k-1 on node 0, the next k on node 1, and so on.
std::vector<int> equal_nodes(int ranks, int nodes) {
  LAGA_CHECK(
      ranks % nodes == 0,
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

// Ranks on this rank's host share its cores.
void share_cores(const Communicator& world) {
  int here = 0;
  for (int rank = 0; rank < world.size(); ++rank) {
    here += world.node_of(rank) == world.node_of(world.rank()) ? 1 : 0;
  }
  at::set_num_threads(std::max(1, at::get_num_threads() / here));
}

int launched_ranks(const EngineOptions& options) {
  const int ranks = mpi_world({options.deadline_s})->size();
  LAGA_CHECK(
      options.ranks == 0 || options.ranks == ranks,
      "--ranks is what the launcher started (",
      options.ranks,
      " vs ",
      ranks,
      ")");
  return ranks;
}

} // namespace

Engine::Engine(EngineOptions options) : options_(std::move(options)) {
  if (options_.comm.empty()) {
    options_.comm = launched_by_mpi() ? "mpi" : "threads";
  }
  const std::string& comm = options_.comm;
  LAGA_CHECK(
      comm == "threads" || comm == "mpi" || comm == "ghost",
      "--comm is threads, mpi or ghost (got '",
      comm,
      "')");
  LAGA_CHECK(
      (comm == "mpi") == launched_by_mpi(),
      "--comm ",
      comm,
      launched_by_mpi() ? " under an MPI launcher: leave --comm out"
                        : " needs an MPI launcher: tools/laga-mpi N ...");
  if (comm == "mpi") options_.ranks = launched_ranks(options_);
  if (options_.ranks == 0) options_.ranks = 4;
  LAGA_CHECK(
      comm != "threads" || options_.ranks <= 1024,
      "--ranks: at most 1024 threads (got ",
      options_.ranks,
      ")");
  LAGA_CHECK(
      options_.ghost_rank < options_.ranks,
      "--ghost-rank ",
      options_.ghost_rank,
      " of ",
      options_.ranks,
      " ranks");
  if (options_.nodes > 0) {
    node_of_ = equal_nodes(options_.ranks, options_.nodes);
  }
  if (comm == "mpi") {
    world_ =
        mpi_world({.deadline_s = options_.deadline_s, .node_of = node_of_});
    share_cores(*world_);
  }
}

std::string Engine::description() const {
  const unsigned cores = std::thread::hardware_concurrency();
  if (options_.comm == "ghost") {
    return fmt::format("rank {} alone on {} cores", options_.ghost_rank, cores);
  }
  return fmt::format("{}, {} cores", options_.comm, cores);
}

int Engine::threads_of_a_rank() const {
  return options_.comm == "mpi" ? at::get_num_threads()
                                : laga::threads_of_a_rank(options_.ranks);
}

LayerInputs Engine::make_inputs(
    const MlaConfig& config, const RunShape& shape, uint64_t seed) const {
  const int64_t tokens = has_results() ? shape.seq : shape.local_seq();
  return laga::make_inputs(config, tokens, shape.batch, shape.dtype, seed);
}

std::optional<LayerRun> Engine::run(
    const LayerTask& task, const LayerInputs& inputs) const {
  if (options_.comm == "ghost") {
    return run_ghost(task, inputs, options_.ghost_rank, node_of_);
  }
  if (options_.comm == "threads") {
    return run_on_threads(task, inputs, {options_.deadline_s, node_of_});
  }
  if (task.shape.ranks == world_->size()) return run_on(task, inputs, world_);
  // The first ranks as a world of their own; the rest meets them at the next
  // collective.
  const bool takes_part = world_->rank() < task.shape.ranks;
  const auto part = world_->split(takes_part ? 0 : 1, "world");
  if (!takes_part) return std::nullopt;
  return run_on(task, inputs, part);
}

void Engine::on_each_rank(
    const std::function<void(const std::shared_ptr<Communicator>&)>& body)
    const {
  if (world_) {
    body(world_);
  } else {
    run_ranks({options_.ranks, options_.deadline_s, node_of_}, body);
  }
}

void add_engine_options(CLI::App& command, EngineOptions& options) {
  command.add_option(
      "--comm",
      options.comm,
      "What ranks are: threads of this process; mpi: processes under its "
      "launcher (tools/laga-mpi), where it is the default; ghost: one rank "
      "alone (bytes, memory and time, no results)");
  command
      .add_option(
          "--ranks",
          options.ranks,
          "Ranks the sequence is split over (default 4; under a launcher, what "
          "it started)")
      ->check(CLI::Range(1, 1 << 20));
  command
      .add_option(
          "--nodes",
          options.nodes,
          "Pretend that the ranks sit on so many nodes: counts bytes across "
          "them, and sums node by node (default: 1; under a launcher, the "
          "hosts)")
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
