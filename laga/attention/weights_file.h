// Weights from and to safetensors files, under the Hugging Face names.
#pragma once

#include "laga/attention/weights.h"
#include "laga/core/safetensors.h"

#include <string>

namespace laga {

/// The tensor as it is stored: bf16, fp32, fp64 or int64. Throws
/// InvalidArgument naming the tensor where it is damaged, missing or of another
/// dtype.
at::Tensor read_tensor(const SafetensorsReader& file, const std::string& name);

/// As above, and of the shape `expected`; the message has the file's and the
/// expected one.
at::Tensor read_tensor(
    const SafetensorsReader& file,
    const std::string& name,
    at::IntArrayRef expected);

/// One layer's weights as `dtype`. `path` is a safetensors file, an index of
/// several or their folder; `layer` is what find_layer_prefix takes. Narrowing
/// rounds to the nearest, ties to even (fp64 to bf16 by way of fp32, as torch
/// does); widening is exact. Throws InvalidArgument naming the tensor where one
/// is missing, damaged, of another dtype or shape, or where the layer has one
/// that `config` does not know of (a bias, the scales of quantized weights).
Weights load_weights(
    const MlaConfig& config,
    const std::string& path,
    Dtype dtype,
    const std::string& layer = "");

/// Each tensor in its own dtype, under parameters()'s names; see
/// write_safetensors.
void save_weights(
    const std::string& path,
    const Weights& weights,
    const SafetensorsMetadata& metadata = {});

} // namespace laga
