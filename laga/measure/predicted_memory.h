// The memory that a run on this machine should take.
#pragma once

#include "laga/measure/layer_run.h"
#include "laga/plan/memory.h"

namespace laga {

/// What predict_memory has to know of the machine and of the task: the kernels'
/// working memory, and the workers of a rank that has `threads` of them.
MemoryOptions memory_options(const LayerTask& task, int threads);

/// The tape of every rank of `task`.
MemoryTape predicted_memory(const LayerTask& task, int threads);

} // namespace laga
