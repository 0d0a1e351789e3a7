// What a run leaves behind and what the planner predicts are the same type, so
// a test is one comparison.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace laga {

enum class Phase { kForward, kBackward, kWeightGradients };

/// "forward", "backward" or "weight_gradients".
constexpr const char* name_of(Phase phase) {
  return phase == Phase::kForward    ? "forward"
         : phase == Phase::kBackward ? "backward"
                                     : "weight_gradients";
}

/// One collective as one rank sees it.
struct Transfer {
  Phase phase;
  std::string name; // what moves: "q", "latent", "d_out", a parameter's name
  std::string op; // "all_to_all", "all_gather", "reduce_scatter", "all_reduce"
  std::string group;               // the communicator's name
  int64_t bytes_sent;              // by this rank, its own slice excluded
  int64_t bytes_sent_across_nodes; // of those, to ranks of another node
  int64_t payload_bytes;           // a gathered shard counted once

  bool operator==(const Transfer&) const = default;
};

/// How a measured list differs from a predicted one, one line a difference:
/// matched by phase and name, whatever their order. Empty where they agree in
/// everything.
std::vector<std::string> differences(
    std::vector<Transfer> predicted, std::vector<Transfer> measured);

} // namespace laga
