// The once-a-step sum of weight gradients over the sequence-parallel group.
#pragma once

#include "laga/attention/context.h"
#include "laga/attention/weights.h"

namespace laga {

/// With weights replicated over the group, every form's backward leaves partial
/// sums. Replaces each leaf's gradient by the sum over the group, equal on all
/// ranks: one transfer per parameter, named after it. kv_b's rows in LAGA and
/// Absorbed have one owner each and are gathered. Throws InvalidArgument where
/// a gradient is missing, CommError where a peer fails.
void sum_weight_gradients(const Weights& leaves, const Context& context);

} // namespace laga
