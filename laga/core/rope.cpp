#include "laga/core/rope.h"

#include "laga/core/check.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace laga {
namespace {

/// YaRN's attention temperature for a context `factor` times as long.
double mscale(double factor, double m) {
  return factor <= 1 ? 1 : 0.1 * m * std::log(factor) + 1;
}

/// How much of a pair's own angle YaRN keeps, by the pair's index: 1 for pairs
/// that turn more than beta_fast times over the original length, 0 for those
/// that turn less than beta_slow times, linear in between.
struct Ramp {
  double low, high;

  double keep(int64_t pair) const {
    const double position = (static_cast<double>(pair) - low) / (high - low);
    return 1 - std::clamp(position, 0.0, 1.0);
  }
};

Ramp yarn_ramp(const Yarn& yarn, double theta, int64_t r) {
  // The pair i that makes `turns` turns over the original length L solves
  // L theta^(-2i / r) = 2 pi turns.
  const auto pair_of = [&](double turns) {
    const auto length =
        static_cast<double>(yarn.original_max_position_embeddings);
    return static_cast<double>(r) *
           std::log(length / (turns * 2 * std::numbers::pi)) /
           (2 * std::log(theta));
  };
  double low = pair_of(yarn.beta_fast);
  double high = pair_of(yarn.beta_slow);
  if (yarn.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  // As Hugging Face: clamped to r - 1, not to the r / 2 - 1 pairs there are,
  // and kept apart so that the ramp has a slope.
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(r - 1));
  if (low == high) high += 0.001;
  return {low, high};
}

} // namespace

std::vector<double> inverse_frequencies(const MlaConfig& config) {
  std::vector<double> frequencies;
  if (config.rope == RopeLayout::kNone) return frequencies;
  LAGA_CHECK_GT(config.rope_theta, 1.0, "model ", config.name);

  const int64_t r = config.qk_rope_head_dim;
  for (int64_t i = 0; i < r / 2; ++i) {
    frequencies.push_back(std::pow(
        config.rope_theta,
        -2.0 * static_cast<double>(i) / static_cast<double>(r)));
  }
  if (!config.yarn) return frequencies;

  const double factor = config.yarn->factor;
  LAGA_CHECK_GT(factor, 0.0, "YaRN of model ", config.name);
  const Ramp ramp = yarn_ramp(*config.yarn, config.rope_theta, r);
  for (int64_t i = 0; i < r / 2; ++i) {
    double& frequency = frequencies[static_cast<size_t>(i)];
    const double keep = ramp.keep(i);
    frequency = frequency / factor * (1 - keep) + frequency * keep;
  }
  return frequencies;
}

double rope_amplitude(const MlaConfig& config) {
  if (!config.yarn) return 1;
  const Yarn& yarn = *config.yarn;
  if (yarn.attention_factor) return *yarn.attention_factor;
  // Zero means "not set", as in Hugging Face.
  const double m = yarn.mscale.value_or(0);
  const double m_all = yarn.mscale_all_dim.value_or(0);
  if (m != 0 && m_all != 0) {
    return mscale(yarn.factor, m) / mscale(yarn.factor, m_all);
  }
  return mscale(yarn.factor, 1);
}

double softmax_scale(const MlaConfig& config) {
  if (config.softmax_scale) return *config.softmax_scale;
  const double scale = 1 / std::sqrt(static_cast<double>(config.qk_head_dim()));
  if (!config.yarn) return scale;
  // mscale(f, 0) is 1, so "not set" needs no case of its own.
  const double m =
      mscale(config.yarn->factor, config.yarn->mscale_all_dim.value_or(0));
  return scale * m * m;
}

} // namespace laga
