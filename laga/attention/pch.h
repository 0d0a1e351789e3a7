// Precompiled: libtorch's headers cost 11 s of compiling in each file.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/custom_function.h>
