#include "laga/attention/inner/inner.h"
#include "laga/attention/inner/key_value_gradients.h"
#include "laga/attention/inner/panels.h"

#include <ATen/ops/_softmax.h>
#include <ATen/ops/_softmax_backward_data.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/triu.h>

#include <limits>
#include <optional>

namespace laga {

namespace {

// Nope and rope columns side by side, [S, w + r]: one GEMM over both, in every
// form, is what makes their bits equal. A view where they lie side by side.
at::Tensor joined(const at::Tensor& nope, const at::Tensor& pe) {
  const std::optional<at::Tensor> view = joined_view(nope, pe);
  return view ? *view : at::cat({nope, pe}, 1);
}

// out = scale * a b, into whatever strides out has.
void scaled_mm_out(
    at::Tensor out, const at::Tensor& a, const at::Tensor& b, double scale) {
  at::addmm_out(out, out, a, b, /*beta=*/0, /*alpha=*/scale);
}

std::vector<at::Tensor> eager_forward(
    const AttentionTensors& in,
    const AttentionOptions& options,
    const at::Tensor& out) {
  const int64_t S = in.q_nope.size(0), batch = in.q_nope.size(1);
  const int64_t heads = in.q_nope.size(2);
  at::Tensor scores = at::empty({batch, heads, S, S}, in.q_nope.options());
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t h = 0; h < heads; ++h) {
      scaled_mm_out(
          scores[b][h],
          joined(panel(in.q_nope, b, h), panel(in.q_pe, b, h)),
          joined(panel(in.k_nope, b, h), panel(in.k_pe, b, h)).t(),
          options.softmax_scale);
    }
  }
  if (options.causal) {
    const at::Tensor future =
        at::ones({S, S}, scores.options().dtype(at::kBool)).triu_(1);
    scores.masked_fill_(future, -std::numeric_limits<double>::infinity());
  }
  const at::Tensor probabilities = at::_softmax(scores, -1, false);
  scores.reset();
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t h = 0; h < heads; ++h) {
      at::Tensor out_panel = panel(out, b, h);
      at::mm_out(out_panel, probabilities[b][h], panel(in.v, b, h));
    }
  }
  return {probabilities};
}

// With O = P V and P = softmax(scale Q K^T): dV = P^T dO, dP = dO V^T,
// dS = P (dP - rowsum(P dP)), dQ = scale dS K, dK = scale dS^T Q.
void eager_backward(
    const AttentionTensors& in,
    const AttentionOptions& options,
    std::vector<at::Tensor> saved,
    const at::Tensor& d_out,
    const std::function<AttentionGradients()>& make_gradients) {
  const at::Tensor& probabilities = saved[0];
  const int64_t batch = d_out.size(1), heads = d_out.size(2);
  at::Tensor d_probabilities =
      at::empty(probabilities.sizes(), probabilities.options());
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t h = 0; h < heads; ++h) {
      at::Tensor d_panel = d_probabilities[b][h];
      at::mm_out(d_panel, panel(d_out, b, h), panel(in.v, b, h).t());
    }
  }
  const at::Tensor d_scores = at::_softmax_backward_data(
      d_probabilities, probabilities, -1, probabilities.scalar_type());
  d_probabilities.reset();

  const AttentionGradients gradients = make_gradients();
  const double scale = options.softmax_scale;
  for (int64_t b = 0; b < batch; ++b) {
    KeyValueGradients key_value(gradients, b, heads);
    for (int64_t h = 0; h < heads; ++h) {
      const at::Tensor q = joined(panel(in.q_nope, b, h), panel(in.q_pe, b, h));
      const at::Tensor k = joined(panel(in.k_nope, b, h), panel(in.k_pe, b, h));
      const at::Tensor d_q = at::empty(q.sizes(), q.options());
      const at::Tensor d_k = at::empty(k.sizes(), k.options());
      scaled_mm_out(d_q, d_scores[b][h], k, scale);
      scaled_mm_out(d_k, d_scores[b][h].t(), q, scale);
      const auto d_q_parts =
          d_q.split_with_sizes({in.q_nope.size(-1), in.q_pe.size(-1)}, 1);
      panel(gradients.q_nope, b, h).copy_(d_q_parts[0]);
      panel(gradients.q_pe, b, h).copy_(d_q_parts[1]);
      key_value.add(
          h, d_k, at::mm(probabilities[b][h].t(), panel(d_out, b, h)));
    }
    key_value.finish();
  }
}

} // namespace

const InnerAttention kEagerAttention{
    .name = "eager",
    .forward = eager_forward,
    .backward = eager_backward,
    .score_buffers = 3};

} // namespace laga
