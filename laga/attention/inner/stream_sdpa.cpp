// LAGA without K and V on ATen alone: one head at a time is expanded by a GEMM
// and goes through `sdpa`. The tensors kept are those of `stream`, and what is
// alive at a time is one head's keys and values beside the op's own copies.
#include "laga/attention/dtype.h"
#include "laga/attention/inner/inner.h"
#include "laga/attention/product.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <vector>

namespace laga {

namespace {

// One head's part of everything, as sdpa takes it.
class Head {
 public:
  Head(const LatentTensors& in, int64_t head)
      : in_(in),
        head_(head),
        nope_(in.q_nope.size(-1)),
        kv_width_(in.kv_b.size(0) / in.q_nope.size(2)) {}

  at::Tensor of(const at::Tensor& x) const { // [S, b, h, w] -> [S, b, 1, w]
    return x.narrow(2, head_, 1);
  }
  at::Tensor weight(const at::Tensor& kv_b) const { // [nope + v, c]
    return kv_b.narrow(0, head_ * kv_width_, kv_width_);
  }
  at::Tensor latent_rows() const { // [S b, c]
    return in_.latent.flatten(0, 1).narrow(1, 0, in_.kv_b.size(1));
  }
  AttentionTensors expanded() const {
    const at::Tensor kv = product(latent_rows(), weight(in_.kv_b).t());
    return with_keys(in_, kv, in_.latent.narrow(-1, in_.kv_b.size(1), rope()));
  }
  // kv [S b, nope + v], k_pe [S, b, r]; queries out of `tensors`.
  AttentionTensors with_keys(
      const LatentTensors& tensors,
      const at::Tensor& kv,
      const at::Tensor& k_pe) const {
    const auto parts =
        kv.view({in_.latent.size(0), in_.latent.size(1), 1, kv_width_})
            .split_with_sizes({nope_, kv_width_ - nope_}, -1);
    return {
        of(tensors.q_nope),
        of(tensors.q_pe),
        parts[0],
        k_pe.unsqueeze(2),
        parts[1]};
  }
  int64_t rope() const {
    return in_.q_pe.size(-1);
  }
  at::Tensor empty_kv() const { // [S b, nope + v]
    return at::empty(
        {in_.latent.size(0) * in_.latent.size(1), kv_width_},
        in_.latent.options());
  }

 private:
  const LatentTensors& in_;
  int64_t head_, nope_, kv_width_;
};

std::vector<at::Tensor> forward(
    const LatentTensors& in,
    const AttentionOptions& options,
    const at::Tensor& out) {
  std::vector<at::Tensor> saved{out}; // then each head's log-sum-exp
  for (int64_t h = 0; h < out.size(2); ++h) {
    const Head head(in, h);
    saved.push_back(
        kSdpaAttention.forward(head.expanded(), options, head.of(out))[1]);
  }
  return saved;
}

void backward(
    const LatentTensors& in,
    const AttentionOptions& options,
    std::vector<at::Tensor> saved,
    const at::Tensor& d_out,
    const std::function<LatentGradients()>& make_gradients) {
  const LatentGradients gradients = make_gradients();
  const int64_t c = in.kv_b.size(1);
  const at::Tensor sum = at::zeros(
      in.latent.sizes(),
      in.latent.options().dtype(accumulator_of(in.latent.scalar_type())));
  for (int64_t h = 0; h < d_out.size(2); ++h) {
    const Head head(in, h);
    const at::Tensor d_kv = head.empty_kv();
    const at::Tensor d_k_pe = at::empty(
        {in.latent.size(0), in.latent.size(1), head.rope()},
        in.latent.options());
    kSdpaAttention.backward(
        head.expanded(),
        options,
        {head.of(saved[0]), std::move(saved[static_cast<size_t>(h) + 1])},
        head.of(d_out),
        [&] { return head.with_keys(gradients, d_kv, d_k_pe); });
    sum.narrow(-1, 0, c).add_(
        product(d_kv, head.weight(in.kv_b))
            .view({in.latent.size(0), in.latent.size(1), c}));
    sum.narrow(-1, c, head.rope()).add_(d_k_pe);
    at::Tensor d_weight = head.weight(gradients.kv_b);
    product_into(d_weight, d_kv.t(), head.latent_rows());
  }
  gradients.latent.copy_(sum);
}

} // namespace

const InnerAttention kStreamSdpaAttention{
    .name = "stream-sdpa",
    .forward_latent = forward,
    .backward_latent = backward};

} // namespace laga
