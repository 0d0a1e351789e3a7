// From tensors to the kernels' arguments.
#pragma once

#include "laga/attention/dtype.h"
#include "laga/attention/inner/inner.h"
#include "laga/kernels/attention.h"

#include <ATen/core/Tensor.h>

#include <utility>
#include <vector>

namespace laga {

/// Calls f with a value of the kernels' number type for `like`: Bf16, float or
/// double. Throws InvalidArgument for other types.
template <class F>
void with_number(const at::Tensor& like, F&& f) {
  switch (dtype_of(like)) {
    case Dtype::kBf16:
      return f(Bf16{});
    case Dtype::kFp32:
      return f(float{});
    case Dtype::kFp64:
      return f(double{});
  }
}

/// x [S, b, h or 1, w]; one of `heads` heads or all.
template <class Number>
kernels::View<Number> view_of(const at::Tensor& x, int64_t heads) {
  return {
      static_cast<Number*>(const_cast<void*>(x.const_data_ptr())),
      x.stride(0),
      x.stride(1),
      x.size(2) == 1 && heads > 1 ? 0 : x.stride(2)};
}

/// x [S, b, h], one number each.
template <class Number>
kernels::View<Number> numbers_of(const at::Tensor& x) {
  return {
      static_cast<Number*>(const_cast<void*>(x.const_data_ptr())),
      x.stride(0),
      x.stride(1),
      x.stride(2)};
}

/// This thread's share of the machine: at::get_num_threads() workers.
kernels::Workers torch_workers();

/// Uninitialised bytes for all workers, seen by the memory account.
at::Tensor kernel_scratch(int64_t bytes_per_worker, int workers);

/// One slice over S queries and keys.
kernels::MaskSlice mask_of(int64_t seq, bool causal);

/// Numbers of each query in the accumulator's precision, [S, b, h].
at::Tensor empty_row_numbers(const at::Tensor& q);

/// dots [S, b, h] = sums over the last dimension of x y, both [S, b, h, w].
void row_dots_out(
    const at::Tensor& dots, const at::Tensor& x, const at::Tensor& y);

/// Sizes, scale and queries; q_nope [S, b, h, w], q_pe [S, b, h, r].
template <class T>
void set_queries(
    kernels::AttentionInputs<T>& params,
    const at::Tensor& q_nope,
    const at::Tensor& q_pe,
    int64_t v_width,
    const AttentionOptions& options) {
  params.batch = q_nope.size(1);
  params.heads = q_nope.size(2);
  params.q_tokens = params.k_tokens = q_nope.size(0);
  params.nope = q_nope.size(-1);
  params.rope = q_pe.size(-1);
  params.v_width = v_width;
  params.scale = options.softmax_scale;
  params.q_nope = view_of<const T>(q_nope, params.heads);
  params.q_pe = view_of<const T>(q_pe, params.heads);
}

/// What a forward keeps and a backward finds: {out, lse}, or {lse} and then
/// {lse, delta} where delta is given. Returns {lse, delta} in either case.
struct RowNumbers {
  at::Tensor lse, delta; // [S, b, h]
};
std::vector<at::Tensor> kept_rows(
    const at::Tensor& out,
    const at::Tensor& lse,
    const AttentionOptions& options);
RowNumbers found_rows(
    const std::vector<at::Tensor>& saved,
    const at::Tensor& d_out,
    const AttentionOptions& options);

/// A whole forward into `out` [S, b, h, w_v]; `set_inputs(params)` adds
/// queries, keys and values. Returns what the backward finds in `saved`.
template <class SetInputs>
std::vector<at::Tensor> forward_by_kernels(
    const AttentionOptions& options,
    const at::Tensor& out,
    const SetInputs& set_inputs) {
  const at::Tensor lse = empty_row_numbers(out);
  with_number(out, [&]<class T>(T) {
    const auto mask = mask_of(out.size(0), options.causal);
    kernels::ForwardParams<T> params;
    params.mask = {&mask, 1};
    set_inputs(params);
    params.out = view_of<T>(out, params.heads);
    params.lse = numbers_of<Accumulator<T>>(lse);
    const auto& kernels = kernels::kernels<T>();
    const auto workers = torch_workers();
    const at::Tensor scratch =
        kernel_scratch(kernels.forward_scratch_bytes(params), workers.count);
    kernels::attention_forward(
        kernels, params, workers, scratch.mutable_data_ptr());
  });
  return kept_rows(out, lse, options);
}

/// A whole backward. `set_gradients(params)` says where the gradients go, once
/// delta is there, and returns a function that is called after the kernels.
template <class SetInputs, class SetGradients>
void backward_by_kernels(
    const AttentionOptions& options,
    std::vector<at::Tensor> saved,
    const at::Tensor& d_out,
    const SetInputs& set_inputs,
    const SetGradients& set_gradients) {
  with_number(d_out, [&]<class T>(T) {
    const RowNumbers rows = found_rows(saved, d_out, options);
    const auto mask = mask_of(d_out.size(0), options.causal);
    kernels::BackwardParams<T> params;
    params.mask = {&mask, 1};
    set_inputs(params);
    params.d_out = view_of<const T>(d_out, params.heads);
    params.lse = numbers_of<const Accumulator<T>>(rows.lse);
    params.delta = numbers_of<const Accumulator<T>>(rows.delta);
    auto finish = set_gradients(params);
    const auto& kernels = kernels::kernels<T>();
    const auto workers = torch_workers();
    {
      const at::Tensor scratch =
          kernel_scratch(kernels.backward_scratch_bytes(params), workers.count);
      kernels::attention_backward(
          kernels, params, workers, scratch.mutable_data_ptr());
    }
    finish();
  });
}

/// Where gradients shared by heads are summed in the accumulator's precision:
/// in the gradient itself where that is its type, else in a buffer of its own.
class SharedGradient {
 public:
  /// gradient [S, b, 1, w]; cleared.
  explicit SharedGradient(at::Tensor gradient);
  const at::Tensor& sum() const {
    return sum_;
  }
  /// Rounds the sum into the gradient.
  void finish();

 private:
  at::Tensor gradient_;
  at::Tensor sum_;
};

} // namespace laga
