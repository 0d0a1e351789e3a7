// One attention layer, forward and backward, over a group of ranks, with
// everything measured: results, bytes, memory, time.
#pragma once

#include "laga/attention/context.h"
#include "laga/attention/weights.h"
#include "laga/measure/errors.h"

#include <functional>
#include <memory>
#include <optional>
#include <vector>

namespace laga {

/// Of the whole sequence, shared by all ranks, or a rank's shard of it; charged
/// to nobody.
struct LayerInputs {
  Weights weights;
  at::Tensor hidden;      // [S | s, b, d]
  at::Tensor grad_output; // [S | s, b, d]
};

/// Drawn from `seed`: the same for every number of ranks.
LayerInputs make_inputs(
    const MlaConfig& config,
    int64_t seq,
    int64_t batch,
    Dtype dtype,
    uint64_t seed);

struct LayerTask {
  MlaConfig config;
  Form form;
  RunShape shape;
  ContextOptions options;
  int repeat = 1; // the fastest is reported; results are the last one's
};

struct PhaseSeconds {
  double forward = 0;
  double backward = 0;
  double weight_gradients = 0; // their sum over the group
  double waiting = 0;          // inside collectives, of forward and backward
};

struct MemoryBytes {
  int64_t saved = 0; // alive at the end of the forward
  int64_t peak = 0;  // over forward and backward
  int64_t weights = 0;
  int64_t weight_gradients = 0;

  bool operator==(const MemoryBytes&) const = default;
};

/// What one rank has to say.
struct RankRun {
  at::Tensor output;                         // [s, b, d]
  at::Tensor grad_hidden;                    // [s, b, d]
  std::vector<NamedTensor> weight_gradients; // summed: equal on all ranks
  std::vector<Transfer> transfers;
  PhaseSeconds seconds;
  MemoryBytes memory;
};

/// Rank `rank`'s views.
LayerInputs shard_of(const LayerInputs& whole, const RunShape& shape, int rank);

/// The part of one rank of `comm`. Collective. Throws what mla_attention does.
RankRun run_rank(
    const LayerTask& task,
    const LayerInputs& shard,
    const std::shared_ptr<Communicator>& comm);

/// Of the whole group; of a ghost, of that one rank, without results.
struct LayerRun {
  NamedResults results; // "output", "grad.hidden_states", "grad." + parameter
  std::vector<std::vector<Transfer>> transfers; // by rank
  std::vector<MemoryBytes> memory;              // by rank
  PhaseSeconds seconds;                         // the largest over ranks
  int first_rank = 0;       // whose figures come first: a ghost's rank
  std::vector<int> node_of; // of all ranks of the group
  /// Weight gradients that are not equal to the bit on all ranks, in words;
  /// empty when all is well.
  std::vector<std::string> disagreements;
};

/// On the ranks of `comm`, each of which has the whole inputs. Collective; rank
/// 0 gets the result.
std::optional<LayerRun> run_on(
    const LayerTask& task,
    const LayerInputs& inputs,
    const std::shared_ptr<Communicator>& comm);

/// Runs a task over some group: run_on with a communicator, run_on_threads, ...
/// Nothing comes back where another process reports.
using Runner = std::function<std::optional<LayerRun>(
    const LayerTask& task, const LayerInputs& inputs)>;

/// Of this process's threads, those that each of `ranks` rank threads has.
int threads_of_a_rank(int ranks);

struct ThreadRunOptions {
  double deadline_s = 300;
  std::vector<int> node_of = {}; // pretended layout; empty: one node
};

/// On rank threads of this process, the machine's cores shared out among them.
LayerRun run_on_threads(
    const LayerTask& task,
    const LayerInputs& inputs,
    const ThreadRunOptions& options = {});

/// One rank alone, at full size: memory, bytes and time of its computing are
/// those of a real run; there are no results. `shard` has a rank's tokens.
LayerRun run_ghost(
    const LayerTask& task,
    const LayerInputs& shard,
    int rank,
    std::vector<int> node_of);

} // namespace laga
