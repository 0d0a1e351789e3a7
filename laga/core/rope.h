// Rotary position embedding and softmax scale, from the config alone.
#pragma once

#include "laga/core/config.h"

namespace laga {

/// Angle per position of each of the qk_rope_head_dim / 2 pairs, YaRN included
/// (arXiv 2309.00071, section 3.2). Empty for RopeLayout::kNone.
std::vector<double> inverse_frequencies(const MlaConfig& config);

/// What cos and sin are multiplied with: `attention_factor` if given; else
/// mscale(f, mscale) / mscale(f, mscale_all_dim) if both are given and not
/// zero; else mscale(f, 1). 1 without YaRN.
double rope_amplitude(const MlaConfig& config);

/// 1 / sqrt(qk_head_dim), times mscale(f, mscale_all_dim)^2 where YaRN sets
/// mscale_all_dim; or the config's override.
double softmax_scale(const MlaConfig& config);

} // namespace laga
