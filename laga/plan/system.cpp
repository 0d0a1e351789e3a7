#include "laga/plan/system.h"

#include "laga/core/check.h"

#include <algorithm>
#include <cmath>

namespace laga {

double Curve::at(double size) const {
  if (size <= points.front().first) return points.front().second;
  if (size >= points.back().first) return points.back().second;
  const auto above = std::upper_bound(
      points.begin(), points.end(), size, [](double x, const auto& point) {
        return x < point.first;
      });
  const auto below = above - 1;
  const double share =
      std::log(size / below->first) / std::log(above->first / below->first);
  return below->second * std::pow(above->second / below->second, share);
}

double Link::seconds(double bytes, int peers) const {
  if (peers == 0) return 0;
  return (latency_us + peers * per_peer_us) * 1e-6 +
         (bytes > 0 ? bytes / (gb_per_s.at(bytes) * 1e9) : 0);
}

double System::sharers(int ranks) const {
  return ranks_share_rates ? std::min(ranks, ranks_per_node) : 1;
}

namespace {

const Link& link_for(
    const std::map<std::string, Link>& links, const std::string& op) {
  const auto found = links.find(op);
  return found == links.end() ? links.at("any") : found->second;
}

const Curve& of_dtype(const System& system, Dtype dtype) {
  const auto found = system.gemm_tflop_per_s.find(std::string(name_of(dtype)));
  LAGA_CHECK(
      found != system.gemm_tflop_per_s.end(),
      "system ",
      system.name,
      " has no gemm_tflop_per_s.",
      name_of(dtype));
  return found->second;
}

} // namespace

// Both kinds of links work at the same time.
double System::seconds(const Transfer& transfer, int ranks) const {
  const int here = std::min(ranks, ranks_per_node);
  const double across = static_cast<double>(transfer.bytes_sent_across_nodes);
  const double within = static_cast<double>(transfer.bytes_sent) - across;
  const double share = sharers(ranks);
  return std::max(
      link_for(within_node, transfer.op).seconds(within * share, here - 1),
      ranks > here ? link_for(between_nodes, transfer.op)
                         .seconds(across * share, ranks - here)
                   : 0.0);
}

double System::gemm_seconds(double flops, Dtype dtype, int ranks) const {
  const double rate = of_dtype(*this, dtype).at(flops * 1e-9) * 1e12;
  return flops / rate * sharers(ranks);
}

double System::attention_seconds(
    double flops,
    ScoreSpace space,
    Phase phase,
    double seq,
    Dtype dtype,
    int ranks) const {
  const auto found = attention_tflop_per_s.find(std::string(name_of(dtype)));
  LAGA_CHECK(
      found != attention_tflop_per_s.end(),
      "system ",
      name,
      " has no attention_tflop_per_s.",
      name_of(dtype));
  const AttentionRates& rates = found->second;
  const bool forward = phase == Phase::kForward;
  const Curve& curve =
      space == ScoreSpace::kHead
          ? (forward ? rates.head_forward : rates.head_backward)
          : (forward ? rates.latent_forward : rates.latent_backward);
  return flops / (curve.at(seq) * 1e12) * sharers(ranks);
}

double System::touch_seconds(double bytes, int ranks) const {
  return 2 * bytes / (memory_gb_per_s * 1e9) * sharers(ranks);
}

} // namespace laga
