// What a rank sends, predicted from the config alone. The run counts bytes
// where they are copied (comm); the two share no code, and tests demand that
// they agree transfer by transfer.
//
//   all_to_all of N local bytes    N (P - 1) / P
//   all_gather, reduce_scatter     (P - 1) shard
//   all_reduce of N                2 N (P - 1) / P
#pragma once

#include "laga/core/run_shape.h"
#include "laga/core/transfer.h"

#include <vector>

namespace laga {

/// Which rank of which layout is asked about.
struct Place {
  int rank = 0;
  std::vector<int> node_of; // node of each rank; empty: all on one node
};

/// What of a run's options changes what is sent.
struct SendOptions {
  /// delta travels beside the output's gradient, in the accumulator's
  /// precision: one number a head and token.
  bool send_delta = false;
};

/// Every transfer of one layer's forward, backward and weight-gradient sum, in
/// that order; empty for one rank. Names: "q", "kv", "k_pe", "latent", "out";
/// "d_" and the name in the backward, and "d_lse" where delta is sent; a
/// parameter's name in the sum. Throws InvalidArgument where check_shape does.
std::vector<Transfer> predict_transfers(
    const MlaConfig& config,
    const Form& form,
    const RunShape& shape,
    const Place& place = {},
    const SendOptions& options = {});

} // namespace laga
