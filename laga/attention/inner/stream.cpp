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
    const AttentionOptions& options,
    const kernels::MaskSlice& mask) {
  set_queries(params, in.q_nope, in.q_pe, value_width(in), options, mask);
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
  const at::Tensor lse = empty_row_numbers(out);
  with_number(out, [&]<class T>(T) {
    const auto mask = mask_of(out.size(0), options.causal);
    kernels::ForwardParams<T> params;
    set_inputs(params, in, options, mask);
    params.out = view_of<T>(out, params.heads);
    params.lse = numbers_of<Accumulator<T>>(lse);
    run_forward(params);
  });
  return kept_rows(out, lse, options);
}

void stream_backward(
    const LatentTensors& in,
    const AttentionOptions& options,
    std::vector<at::Tensor> saved,
    const at::Tensor& d_out,
    const std::function<LatentGradients()>& make_gradients) {
  with_number(d_out, [&]<class T>(T) {
    const RowNumbers rows = found_rows(saved, d_out, options);
    saved.clear();
    const LatentGradients gradients = make_gradients();
    const auto mask = mask_of(d_out.size(0), options.causal);
    kernels::BackwardParams<T> params;
    set_inputs(params, in, options, mask);
    params.d_out = view_of<const T>(d_out, params.heads);
    params.lse = numbers_of<const Accumulator<T>>(rows.lse);
    params.delta = numbers_of<const Accumulator<T>>(rows.delta);
    params.d_q_nope.store = view_of<T>(gradients.q_nope, params.heads);
    params.d_q_pe.store = view_of<T>(gradients.q_pe, params.heads);
    SharedGradient d_latent(gradients.latent.unsqueeze(2));
    const at::Tensor sum = d_latent.sum();
    params.d_latent = view_of<Accumulator<T>>(sum, params.heads);
    params.d_k_pe.add = view_of<Accumulator<T>>(
        sum.narrow(-1, params.kv_lora_rank, params.rope), params.heads);
    params.d_kv_b = static_cast<T*>(gradients.kv_b.mutable_data_ptr());
    params.d_kv_b_row = gradients.kv_b.stride(0);
    run_backward(params);
    d_latent.finish();
  });
}

} // namespace

const InnerAttention kStreamAttention{
    .name = "stream",
    .forward_latent = stream_forward,
    .backward_latent = stream_backward,
    .takes_delta = true,
    .cpu_only = true};

} // namespace laga
