#include "laga/attention/inner/aten_op.h"

#include "laga/core/check.h"

#include <ATen/ops/_fused_sdp_choice.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <torch/csrc/autograd/autograd.h>

#include <optional>

namespace laga {

namespace {

std::tuple<at::Tensor, at::Tensor> cpu_forward(
    const OpInputs& in, const AttentionOptions& options) {
  return at::_scaled_dot_product_flash_attention_for_cpu(
      in.q,
      in.k,
      in.v,
      /*dropout_p=*/0,
      options.causal,
      /*attn_mask=*/std::nullopt,
      options.softmax_scale);
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> cpu_backward(
    const OpInputs& in,
    const AttentionOptions& options,
    const at::Tensor& out,
    const at::Tensor& lse,
    const at::Tensor& d_out) {
  return at::_scaled_dot_product_flash_attention_for_cpu_backward(
      d_out,
      in.q,
      in.k,
      in.v,
      out,
      lse,
      /*dropout_p=*/0,
      options.causal,
      /*attn_mask=*/std::nullopt,
      options.softmax_scale);
}

at::Tensor attend(const OpInputs& in, const AttentionOptions& options) {
  return at::scaled_dot_product_attention(
      in.q,
      in.k,
      in.v,
      /*attn_mask=*/std::nullopt,
      /*dropout_p=*/0,
      options.causal,
      options.softmax_scale);
}

void require_fused(const OpInputs& in, const AttentionOptions& options) {
  constexpr int64_t kMath = 0; // at::SDPBackend::math
  LAGA_CHECK(
      at::_fused_sdp_choice(
          in.q,
          in.k,
          in.v,
          /*attn_mask=*/std::nullopt,
          /*dropout_p=*/0,
          options.causal,
          options.softmax_scale) != kMath,
      "inner attention 'sdpa': ATen has no fused attention for ",
      in.q.scalar_type(),
      " ",
      in.q.sizes(),
      " on ",
      in.q.device(),
      ". eager runs there");
}

std::tuple<at::Tensor, at::Tensor> any_forward(
    const OpInputs& in, const AttentionOptions& options) {
  require_fused(in, options);
  return {attend(in, options), at::Tensor()};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> any_backward(
    const OpInputs& in,
    const AttentionOptions& options,
    const at::Tensor& /*out*/,
    const at::Tensor& /*lse*/,
    const at::Tensor& d_out) {
  const at::AutoGradMode record(true);
  const auto leaf = [](const at::Tensor& x) {
    return x.detach().requires_grad_(true);
  };
  const OpInputs leaves{leaf(in.q), leaf(in.k), leaf(in.v)};
  const at::Tensor out = attend(leaves, options);
  const auto gradients =
      torch::autograd::grad({out}, {leaves.q, leaves.k, leaves.v}, {d_out});
  return {gradients[0], gradients[1], gradients[2]};
}

} // namespace

const AtenOp kCpuOp{cpu_forward, cpu_backward};
const AtenOp kAnyDeviceOp{any_forward, any_backward};

} // namespace laga
