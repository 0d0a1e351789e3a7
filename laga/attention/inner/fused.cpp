// Our own kernels (laga/kernels): no score leaves the cache. Kept for the
// backward: the result and its log-sum-exp, S b h (w_v + 1) numbers. Beside
// tensors there is one head's scratch for each worker.
#include "laga/attention/inner/inner.h"
#include "laga/attention/inner/kernel_call.h"

#include <utility>
#include <vector>

namespace laga {

namespace {

template <class T>
void set_inputs(
    kernels::AttentionInputs<T>& params,
    const AttentionTensors& in,
    const AttentionOptions& options) {
  set_queries(params, in.q_nope, in.q_pe, in.v.size(-1), options);
  params.k_nope = view_of<const T>(in.k_nope, params.heads);
  params.k_pe = view_of<const T>(in.k_pe, params.heads);
  params.v = view_of<const T>(in.v, params.heads);
}

std::vector<at::Tensor> fused_forward(
    const AttentionTensors& in,
    const AttentionOptions& options,
    const at::Tensor& out) {
  return forward_by_kernels(
      options, out, [&](auto& params) { set_inputs(params, in, options); });
}

// Of keys and values: written head by head, or summed where heads share. Where
// keys and values are the latent, one sum takes both.
class KernelGradients {
 public:
  template <class T>
  void set(
      const at::Tensor& gradient,
      int64_t heads,
      bool summed,
      kernels::GradientView<T>& view) {
    if (!summed && (gradient.size(2) > 1 || heads == 1)) {
      view.store = view_of<T>(gradient, heads);
    } else {
      view.add = view_of<Accumulator<T>>(sum_in(gradient).sum(), heads);
    }
  }
  void finish() {
    for (auto& [memory, sum] : shared_)
      sum.finish();
  }

 private:
  SharedGradient& sum_in(const at::Tensor& gradient) {
    for (auto& [memory, sum] : shared_) {
      if (memory == gradient.const_data_ptr()) return sum;
    }
    return shared_.emplace_back(gradient.const_data_ptr(), gradient).second;
  }

  std::vector<std::pair<const void*, SharedGradient>> shared_;
};

void fused_backward(
    const AttentionTensors& in,
    const AttentionOptions& options,
    std::vector<at::Tensor> saved,
    const at::Tensor& d_out,
    const std::function<AttentionGradients()>& make_gradients) {
  const auto set = [&](auto& params) { set_inputs(params, in, options); };
  const auto set_gradients = [&]<class T>(kernels::BackwardParams<T>& params) {
    const AttentionGradients gradients = make_gradients();
    params.d_q_nope.store = view_of<T>(gradients.q_nope, params.heads);
    params.d_q_pe.store = view_of<T>(gradients.q_pe, params.heads);
    KernelGradients key_value;
    const bool latent =
        gradients.k_nope.const_data_ptr() == gradients.v.const_data_ptr();
    key_value.set(gradients.k_nope, params.heads, latent, params.d_k_nope);
    key_value.set(gradients.k_pe, params.heads, false, params.d_k_pe);
    key_value.set(gradients.v, params.heads, latent, params.d_v);
    return [key_value]() mutable { key_value.finish(); };
  };
  backward_by_kernels(options, std::move(saved), d_out, set, set_gradients);
}

} // namespace

const InnerAttention kFusedAttention{
    .name = "fused",
    .forward = fused_forward,
    .backward = fused_backward,
    .takes_delta = true,
    .cpu_only = true};

} // namespace laga
