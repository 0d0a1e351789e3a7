// What the ranks of a command are: threads of this process, processes under a
// launcher, or one ghost.
#pragma once

#include "laga/measure/layer_run.h"

#include <optional>
#include <string>
#include <vector>

#include "cli/command.h"

namespace laga::cli {

struct EngineOptions {
  std::string comm = "threads"; // threads or ghost
  int ranks = 4;
  int nodes = 1; // pretended, of equal size, in rank order
  int ghost_rank = 0;
  double deadline_s = 300;
};

class Engine {
 public:
  /// Throws InvalidArgument for an unknown comm or a layout that cannot be.
  explicit Engine(EngineOptions options);

  /// "threads", "ghost"
  const std::string& comm() const {
    return options_.comm;
  }
  /// "threads, 2 cores", "rank 0 alone"
  std::string description() const;

  /// Whether this process reports; the others only take part.
  bool reports() const {
    return true;
  }
  /// Whether runs have results to judge.
  bool has_results() const {
    return options_.comm != "ghost";
  }
  /// The rank whose figures come first in a run's lists.
  int first_rank() const {
    return has_results() ? 0 : options_.ghost_rank;
  }
  const std::vector<int>& node_of() const {
    return node_of_;
  }

  /// What all ranks are given, drawn from `seed`; empty for a ghost, which
  /// draws its shard only.
  std::optional<LayerInputs> make_inputs(
      const MlaConfig& config, const RunShape& shape, uint64_t seed) const;

  /// Collective; the run's figures where the process reports.
  std::optional<LayerRun> run(
      const LayerTask& task,
      const std::optional<LayerInputs>& inputs,
      uint64_t seed) const;

 private:
  EngineOptions options_;
  std::vector<int> node_of_;
};

/// Adds --comm, --ranks, --nodes, --ghost-rank and --deadline.
void add_engine_options(CLI::App& command, EngineOptions& options);

} // namespace laga::cli
