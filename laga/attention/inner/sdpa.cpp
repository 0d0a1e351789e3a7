// ATen's fused attention (aten_op.h). On the CPU its op is called by name,
// because scaled_dot_product_attention takes its math path, with S x S scores,
// without a word wherever the op does not fit.
//
// The op wants one width W for q, k, v and the result: W = max(w + r, w_v), 192
// in head space and 576 in latent space for DeepSeek-V3. What is narrower gets
// zeros on its right: zero columns of q and k add nothing to a score, those of
// v make columns of the result that are cut off. k_pe is copied for every head
// unless k_nope is shared as well. What heads share stays one head in memory,
// with stride 0; q is a view where q_nope and q_pe lie side by side.
//
// Copies, in S b W numbers (h_kv is 1 where all heads share, else h):
//   forward: 2 h_kv of k and v, h of the result;
//   backward: 2 h_kv of k and v, 2 h of out and d_out, 3 h of d_q, d_k and d_v;
//   both, in latent space: h of q.
// Between the two only out and its log-sum-exp are kept, S b h (w_v + 1)
// numbers; k and v are made again from the inputs, which are kept anyway.
//
// In bf16 the op's backward adds d_k and d_v up over blocks of queries in bf16,
// so that their error grows with S: d_k of one causal head, 192/128, is off by
// 4.8e-3, 6.9e-3 and 1.3e-2 at S = 32, 1024 and 2048 (torch 2.13), where the
// plain computation in bf16 is by 5e-3 at each.
#include "laga/attention/inner/aten_op.h"
#include "laga/attention/inner/inner.h"
#include "laga/attention/inner/key_value_gradients.h"
#include "laga/attention/inner/panels.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <optional>

namespace laga {

namespace {

// Parts [S, b, h | 1, w_i] side by side, then zeros: [S, b, h | 1, width], with
// one head where all parts have one. A view where memory holds just that. A
// copy has the sequence inside the batch, or the op would copy d_out once more.
at::Tensor side_by_side(at::TensorList parts, int64_t width) {
  const std::optional<at::Tensor> view =
      parts.size() == 1 ? parts[0] : joined_view(parts[0], parts[1]);
  if (view && view->size(-1) == width) return *view;
  int64_t heads = 1;
  for (const at::Tensor& part : parts)
    heads = std::max(heads, part.size(2));
  const at::Tensor copy = at::empty(
      {parts[0].size(1), parts[0].size(0), heads, width}, parts[0].options());
  int64_t begin = 0;
  for (const at::Tensor& part : parts) {
    copy.narrow(-1, begin, part.size(-1)).copy_(part.transpose(0, 1));
    begin += part.size(-1);
  }
  copy.narrow(-1, begin, width - begin).zero_();
  return copy.transpose(0, 1);
}

// [S, b, h | 1, W] -> [b, h, S, W], no copy
at::Tensor for_op(const at::Tensor& x, int64_t heads) {
  return x.expand({-1, -1, heads, -1}).permute({1, 2, 0, 3});
}

// [b, h, S, W] -> [S, b, h, W], no copy
at::Tensor from_op(const at::Tensor& x) {
  return x.permute({2, 0, 1, 3});
}

const AtenOp& op_for(const at::Tensor& x) {
  return x.is_cpu() ? kCpuOp : kAnyDeviceOp;
}

OpInputs op_inputs(const AttentionTensors& in, int64_t width) {
  const int64_t heads = in.q_nope.size(2);
  return {
      for_op(side_by_side({in.q_nope, in.q_pe}, width), heads),
      for_op(side_by_side({in.k_nope, in.k_pe}, width), heads),
      for_op(side_by_side({in.v}, width), heads)};
}

int64_t key_width(const AttentionTensors& in) {
  return in.q_nope.size(-1) + in.q_pe.size(-1);
}

int64_t op_width(const AttentionTensors& in) {
  return std::max(key_width(in), in.v.size(-1));
}

std::vector<at::Tensor> sdpa_forward(
    const AttentionTensors& in,
    const AttentionOptions& options,
    const at::Tensor& out) {
  const auto [result, lse] =
      op_for(out).forward(op_inputs(in, op_width(in)), options);
  out.copy_(from_op(result).narrow(-1, 0, out.size(-1)));
  return {out, lse}; // lse [b, h, S], in the accumulator's type
}

// d_q, d_k and d_v of every head, each [b, h, S, W].
std::tuple<at::Tensor, at::Tensor, at::Tensor> op_backward(
    const AttentionTensors& in,
    const AttentionOptions& options,
    const at::Tensor& out,
    const at::Tensor& lse,
    const at::Tensor& d_out) {
  const int64_t heads = d_out.size(2), width = op_width(in);
  return op_for(d_out).backward(
      op_inputs(in, width),
      options,
      for_op(side_by_side({out}, width), heads),
      lse,
      for_op(side_by_side({d_out}, width), heads));
}

void sdpa_backward(
    const AttentionTensors& in,
    const AttentionOptions& options,
    std::vector<at::Tensor> saved,
    const at::Tensor& d_out,
    const std::function<AttentionGradients()>& make_gradients) {
  auto [d_q, d_k, d_v] = op_backward(in, options, saved[0], saved[1], d_out);
  saved.clear();

  const AttentionGradients gradients = make_gradients();
  const int64_t nope = in.q_nope.size(-1);
  const at::Tensor d_query = from_op(d_q);
  gradients.q_nope.copy_(d_query.narrow(-1, 0, nope));
  gradients.q_pe.copy_(d_query.narrow(-1, nope, in.q_pe.size(-1)));
  const at::Tensor d_key = d_k.narrow(-1, 0, key_width(in));
  const at::Tensor d_value = d_v.narrow(-1, 0, in.v.size(-1));
  for (int64_t b = 0; b < d_out.size(1); ++b) {
    KeyValueGradients key_value(gradients, b, d_out.size(2));
    for (int64_t h = 0; h < d_out.size(2); ++h) {
      key_value.add(h, d_key[b][h], d_value[b][h]);
    }
    key_value.finish();
  }
}

} // namespace

const InnerAttention kSdpaAttention{
    .name = "sdpa", .forward = sdpa_forward, .backward = sdpa_backward};

} // namespace laga
