// LAGA without K and V: our kernels make one head's keys and values from the
// latent, use them and drop them, and make them again in the backward. Kept for
// the backward, besides queries and latent, which are kept anyway: the result
// and its log-sum-exp.
#include "laga/attention/inner/inner.h"
#include "laga/attention/inner/kernel_call.h"

#include <vector>

namespace laga {

namespace {

int64_t value_width(const LatentTensors& in) {
  return in.kv_b.size(0) / in.q_nope.size(2) - in.q_nope.size(-1);
}

template <class T>
void set_inputs(
    kernels::AttentionInputs<T>& params,
    const LatentTensors& in,
    const AttentionOptions& options) {
  set_queries(params, in.q_nope, in.q_pe, value_width(in), options);
  params.kv_lora_rank = in.kv_b.size(1);
  const at::Tensor shared = in.latent.unsqueeze(2);
  params.latent = view_of<const T>(shared, params.heads);
  params.k_pe = view_of<const T>(
      shared.narrow(-1, params.kv_lora_rank, params.rope), params.heads);
  params.kv_b = static_cast<const T*>(in.kv_b.const_data_ptr());
  params.kv_b_row = in.kv_b.stride(0);
}

std::vector<at::Tensor> stream_forward(
    const LatentTensors& in,
    const AttentionOptions& options,
    const at::Tensor& out) {
  return forward_by_kernels(
      options, out, [&](auto& params) { set_inputs(params, in, options); });
}

void stream_backward(
    const LatentTensors& in,
    const AttentionOptions& options,
    std::vector<at::Tensor> saved,
    const at::Tensor& d_out,
    const std::function<LatentGradients()>& make_gradients) {
  const auto set = [&](auto& params) { set_inputs(params, in, options); };
  const auto set_gradients = [&]<class T>(kernels::BackwardParams<T>& params) {
    const LatentGradients gradients = make_gradients();
    params.d_q_nope.store = view_of<T>(gradients.q_nope, params.heads);
    params.d_q_pe.store = view_of<T>(gradients.q_pe, params.heads);
    SharedGradient d_latent(gradients.latent.unsqueeze(2));
    const at::Tensor& sum = d_latent.sum();
    params.d_latent = view_of<Accumulator<T>>(sum, params.heads);
    params.d_k_pe.add = view_of<Accumulator<T>>(
        sum.narrow(-1, params.kv_lora_rank, params.rope), params.heads);
    params.d_kv_b = static_cast<T*>(gradients.kv_b.mutable_data_ptr());
    params.d_kv_b_row = gradients.kv_b.stride(0);
    return [d_latent]() mutable { d_latent.finish(); };
  };
  backward_by_kernels(options, std::move(saved), d_out, set, set_gradients);
}

} // namespace

const InnerAttention kStreamAttention{
    .name = "stream",
    .forward_latent = stream_forward,
    .backward_latent = stream_backward,
    .takes_delta = true,
    .cpu_only = true,
    .elsewhere = &kStreamSdpaAttention};

} // namespace laga
