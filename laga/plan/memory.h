// What a rank keeps and what it needs at most, predicted from the config alone:
// the layer is rehearsed tensor by tensor, in the order in which a run makes
// and drops them. The run counts bytes at the allocator (attention/memory.h);
// the two share no code, and tests demand that they agree.
//
// Weights and their gradients are not on the tape, nor are rotation tables and
// the layer's input, which are the caller's.
#pragma once

#include "laga/core/run_shape.h"
#include "laga/plan/tape.h"

#include <string_view>

namespace laga {

/// What of a run's options and of the machine changes what is kept.
struct MemoryOptions {
  bool send_delta = false; // as in SendOptions
  int threads = 1;         // of this rank: workers of an inner attention
  /// Working memory of one worker of `fused` and `stream`, bytes; it depends on
  /// the instruction set (kernels/attention.h). 0: on chip, as on a GPU.
  int64_t forward_scratch = 0;
  int64_t backward_scratch = 0;
};

/// One layer's forward and backward. `inner`: "eager", "sdpa", "fused",
/// "stream" or "stream-sdpa". Throws InvalidArgument where check_shape does,
/// for an unknown inner attention, or one that `form` cannot use.
MemoryTape predict_memory(
    const MlaConfig& config,
    const Form& form,
    std::string_view inner,
    const RunShape& shape,
    const MemoryOptions& options = {});

} // namespace laga
