#include "laga/attention/inner/key_value_gradients.h"

#include "laga/attention/inner/panels.h"

namespace laga {

namespace {

bool shared_by_heads(const at::Tensor& x, int64_t heads) {
  return x.size(2) == 1 && heads > 1;
}

bool same_memory(const at::Tensor& a, const at::Tensor& b) {
  return a.const_data_ptr() == b.const_data_ptr();
}

} // namespace

KeyValueGradients::KeyValueGradients(
    const AttentionGradients& gradients, int64_t b, int64_t heads)
    : gradients_(gradients),
      b_(b),
      latent_(same_memory(gradients.k_nope, gradients.v)) {
  const auto sum_where_shared = [&](std::optional<HeadSum>& sum,
                                    const at::Tensor& gradient) {
    if (!shared_by_heads(gradient, heads)) return;
    sum.emplace(panel(gradient, b, 0).sizes(), gradient.options());
  };
  sum_where_shared(nope_sum_, gradients.k_nope);
  sum_where_shared(pe_sum_, gradients.k_pe);
  if (!latent_) sum_where_shared(v_sum_, gradients.v);
}

void KeyValueGradients::add(
    int64_t head, const at::Tensor& d_k, const at::Tensor& d_v) {
  const auto parts = d_k.split_with_sizes(
      {gradients_.k_nope.size(-1), gradients_.k_pe.size(-1)}, 1);
  put(nope_sum_, gradients_.k_nope, head, parts[0]);
  put(pe_sum_, gradients_.k_pe, head, parts[1]);
  if (!latent_) {
    put(v_sum_, gradients_.v, head, d_v);
  } else if (nope_sum_) {
    nope_sum_->add(d_v);
  } else {
    panel(gradients_.v, b_, head).add_(d_v);
  }
}

void KeyValueGradients::finish() {
  if (nope_sum_) panel(gradients_.k_nope, b_, 0).copy_(nope_sum_->rounded());
  if (pe_sum_) panel(gradients_.k_pe, b_, 0).copy_(pe_sum_->rounded());
  if (v_sum_) panel(gradients_.v, b_, 0).copy_(v_sum_->rounded());
}

void KeyValueGradients::put(
    std::optional<HeadSum>& sum,
    const at::Tensor& gradient,
    int64_t head,
    const at::Tensor& value) {
  if (sum) {
    sum->add(value);
  } else {
    panel(gradient, b_, head).copy_(value);
  }
}

} // namespace laga
