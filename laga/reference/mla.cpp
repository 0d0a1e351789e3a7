#include "laga/reference/mla.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <limits>

namespace laga::reference {

namespace {

at::Tensor weight(const Tensors& weights, const std::string& name) {
  const auto found = weights.find(name);
  return found == weights.end() ? at::Tensor() : found->second;
}

at::Tensor project(
    const Tensors& weights, const std::string& name, const at::Tensor& x) {
  return at::linear(
      x, weights.at(name + ".weight"), weight(weights, name + ".bias"));
}

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& gain, double eps) {
  const auto wide = x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor y = x.to(wide);
  const at::Tensor mean_square = (y * y).mean(-1, true);
  return (y / (mean_square + eps).sqrt() * gain).to(x.scalar_type());
}

double yarn_mscale(double factor, double mscale) {
  return factor <= 1 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
}

// A missing mscale and a zero one mean the same.
double set_or_zero(const std::optional<double>& value) {
  return value.value_or(0.0);
}

// The angle of pair i per position: theta^(-2i/r), slowed down by YaRN's factor
// for pairs that turn less than beta_slow times over the original context, kept
// for those that turn more than beta_fast times, blended between.
at::Tensor angle_per_position(const MlaConfig& config) {
  const double r = static_cast<double>(config.qk_rope_head_dim);
  const at::Tensor pair = at::arange(config.qk_rope_head_dim / 2, at::kDouble);
  const at::Tensor plain = at::pow(config.rope_theta, pair * (-2.0 / r));
  if (!config.yarn) return plain;
  const Yarn& yarn = *config.yarn;
  const double context =
      static_cast<double>(yarn.original_max_position_embeddings);
  const auto pair_that_turns = [&](double times) {
    const double pi = std::acos(-1.0);
    return r * std::log(context / (times * 2 * pi)) /
           (2 * std::log(config.rope_theta));
  };
  double first = pair_that_turns(yarn.beta_fast);
  double last = pair_that_turns(yarn.beta_slow);
  if (yarn.truncate) {
    first = std::floor(first);
    last = std::ceil(last);
  }
  first = std::max(first, 0.0);
  last = std::min(last, r - 1);
  if (first == last) last += 0.001;
  const at::Tensor slowed = ((pair - first) / (last - first)).clamp(0, 1);
  return plain * (1 - slowed) + plain / yarn.factor * slowed;
}

double cos_sin_factor(const MlaConfig& config) {
  if (!config.yarn) return 1;
  const Yarn& yarn = *config.yarn;
  if (yarn.attention_factor) return *yarn.attention_factor;
  const double mscale = set_or_zero(yarn.mscale);
  const double all_dim = set_or_zero(yarn.mscale_all_dim);
  if (mscale != 0 && all_dim != 0) {
    return yarn_mscale(yarn.factor, mscale) / yarn_mscale(yarn.factor, all_dim);
  }
  return yarn_mscale(yarn.factor, 1);
}

double score_scale(const MlaConfig& config) {
  if (config.softmax_scale) return *config.softmax_scale;
  const double width =
      static_cast<double>(config.qk_nope_head_dim + config.qk_rope_head_dim);
  double scale = 1 / std::sqrt(width);
  if (config.yarn && set_or_zero(config.yarn->mscale_all_dim) != 0) {
    const double m =
        yarn_mscale(config.yarn->factor, *config.yarn->mscale_all_dim);
    scale *= m * m;
  }
  return scale;
}

// x [b, n, S, r], cos and sin [1 | b, 1, S, r / 2]
at::Tensor rope(
    const MlaConfig& config,
    const at::Tensor& x,
    const at::Tensor& cos,
    const at::Tensor& sin) {
  const int64_t half = x.size(-1) / 2;
  const auto dtype = x.scalar_type();
  if (config.rope == RopeLayout::kInterleaved) {
    const at::Tensor even = x.slice(-1, 0, x.size(-1), 2);
    const at::Tensor odd = x.slice(-1, 1, x.size(-1), 2);
    return at::stack({even * cos - odd * sin, odd * cos + even * sin}, -1)
        .flatten(-2)
        .to(dtype);
  }
  const at::Tensor a = x.narrow(-1, 0, half), b = x.narrow(-1, half, half);
  return at::cat({a * cos - b * sin, b * cos + a * sin}, -1).to(dtype);
}

// [b, S, n w] -> [b, n, S, w]
at::Tensor by_head(const at::Tensor& x, int64_t heads) {
  return x.view({x.size(0), x.size(1), heads, -1}).transpose(1, 2);
}

at::Tensor attention(const Problem& problem, const at::Tensor& hidden) {
  const MlaConfig& config = problem.config;
  const Tensors& w = problem.weights;
  const int64_t n = config.num_heads;
  const at::Tensor x = hidden.transpose(0, 1); // [b, S, d]
  const int64_t S = x.size(1);

  const at::Tensor q = by_head(
      config.q_lora_rank == 0 ? project(w, "q_proj", x)
                              : project(
                                    w,
                                    "q_b_proj",
                                    rms_norm(
                                        project(w, "q_a_proj", x),
                                        w.at("q_a_layernorm.weight"),
                                        config.latent_norm_eps)),
      n);
  const at::Tensor compressed = project(w, "kv_a_proj_with_mqa", x);
  const at::Tensor latent = rms_norm(
      compressed.narrow(-1, 0, config.kv_lora_rank),
      w.at("kv_a_layernorm.weight"),
      config.latent_norm_eps);
  const at::Tensor kv = by_head(project(w, "kv_b_proj", latent), n);

  const int64_t nope = config.qk_nope_head_dim, r = config.qk_rope_head_dim;
  at::Tensor q_pe = q.narrow(-1, nope, r);
  at::Tensor k_pe = compressed.narrow(-1, config.kv_lora_rank, r).unsqueeze(1);
  if (config.rope != RopeLayout::kNone) {
    at::Tensor positions = problem.positions.to(at::kDouble);
    positions = positions.dim() == 1 ? positions.unsqueeze(0) : positions.t();
    const at::Tensor angles =
        (positions.unsqueeze(-1) * angle_per_position(config)).unsqueeze(1);
    const auto wide = x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    const double factor = cos_sin_factor(config);
    const at::Tensor cos = (angles.cos() * factor).to(wide);
    const at::Tensor sin = (angles.sin() * factor).to(wide);
    q_pe = rope(config, q_pe, cos, sin);
    k_pe = rope(config, k_pe, cos, sin);
  }
  const at::Tensor query = at::cat({q.narrow(-1, 0, nope), q_pe}, -1);
  const at::Tensor key =
      at::cat({kv.narrow(-1, 0, nope), k_pe.expand({-1, n, -1, -1})}, -1);
  const at::Tensor value = kv.narrow(-1, nope, config.v_head_dim);

  at::Tensor scores =
      at::matmul(query, key.transpose(-1, -2)) * score_scale(config);
  if (problem.causal) {
    scores =
        scores +
        at::full(
            {S, S}, -std::numeric_limits<double>::infinity(), scores.options())
            .triu(1);
  }
  const at::Tensor out = at::matmul(at::softmax(scores, -1), value);
  const at::Tensor y =
      project(w, "o_proj", out.transpose(1, 2).reshape({x.size(0), S, -1}));
  return y.transpose(0, 1);
}

} // namespace

Tensors solve(const Problem& problem) {
  Problem leaves = problem;
  for (auto& [name, tensor] : leaves.weights) {
    tensor = tensor.detach().requires_grad_(true);
  }
  const at::Tensor hidden = problem.hidden.detach().requires_grad_(true);
  const at::Tensor output = attention(leaves, hidden);
  torch::autograd::backward({output}, {problem.grad_output});
  Tensors results{
      {"output", output.detach()}, {"grad.hidden_states", hidden.grad()}};
  for (const auto& [name, tensor] : leaves.weights) {
    results["grad." + name] = tensor.grad();
  }
  return results;
}

Problem converted(const Problem& problem, at::ScalarType dtype) {
  Problem result = problem;
  for (auto& [name, tensor] : result.weights)
    tensor = tensor.to(dtype);
  result.hidden = problem.hidden.to(dtype);
  result.grad_output = problem.grad_output.to(dtype);
  return result;
}

} // namespace laga::reference
