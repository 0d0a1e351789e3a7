// Bringing what each rank measured to rank 0, over whatever the ranks talk.
#pragma once

#include "laga/measure/layer_run.h"

#include <optional>

namespace laga {

/// Collective. Rank 0 gets everybody's part put together, the others nothing.
std::optional<LayerRun> collect(RankRun run, Communicator& comm);

} // namespace laga
