// What the ranks of a command are: threads of this process, processes under an
// MPI launcher, or one ghost.
#pragma once

#include "laga/measure/layer_run.h"

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cli/command.h"

namespace laga::cli {

struct EngineOptions {
  std::string comm; // threads, mpi or ghost; "": mpi under its launcher
  int ranks = 0;    // 0: as many as the launcher started, else 4
  int nodes = 0;    // pretended, of equal size, in rank order; 0: as they are
  int ghost_rank = 0;
  double deadline_s = 300;
};

class Engine {
 public:
  /// Throws InvalidArgument for an unknown comm or a layout that cannot be.
  /// Under a launcher it starts MPI: collective.
  explicit Engine(EngineOptions options);

  /// "threads", "mpi" or "ghost"
  const std::string& comm() const {
    return options_.comm;
  }
  int ranks() const {
    return options_.ranks;
  }
  /// "threads, 2 cores", "rank 0 alone on 2 cores"
  std::string description() const;

  /// Threads of a rank's computing.
  int threads_of_a_rank() const;

  /// Whether this process reports; the others only take part.
  bool reports() const {
    return world_ == nullptr || world_->rank() == 0;
  }
  /// Whether runs have results to judge.
  bool has_results() const {
    return options_.comm != "ghost";
  }

  /// What all ranks are given, or a ghost's shard, drawn from `seed`.
  LayerInputs make_inputs(
      const MlaConfig& config, const RunShape& shape, uint64_t seed) const;

  /// Collective; the run's figures where the process reports. A task of fewer
  /// ranks than the engine's runs on the first of them.
  std::optional<LayerRun> run(
      const LayerTask& task, const LayerInputs& inputs) const;

  /// run() for what takes a Runner; the engine must outlive it.
  Runner runner() const {
    return [this](const LayerTask& task, const LayerInputs& inputs) {
      return run(task, inputs);
    };
  }

  /// Collective: `body` with each rank's communicator, on all ranks.
  void on_each_rank(
      const std::function<void(const std::shared_ptr<Communicator>&)>& body)
      const;

 private:
  EngineOptions options_;
  std::vector<int> node_of_;            // pretended; empty: as they are
  std::shared_ptr<Communicator> world_; // under a launcher
};

/// Adds --comm, --ranks, --nodes, --ghost-rank and --deadline.
void add_engine_options(CLI::App& command, EngineOptions& options);

} // namespace laga::cli
