// What attention_forward() and attention_backward() refuse.
#pragma once

#include "laga/kernels/params.h"

namespace laga::kernels {

/// Both throw InvalidArgument in the name of the front's function. Not seen:
/// memory of different tensors that overlaps.
template <class T>
void check_forward(const ForwardParams<T>& params);
template <class T>
void check_backward(const BackwardParams<T>& params);

} // namespace laga::kernels
