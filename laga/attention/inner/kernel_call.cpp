#include "laga/attention/inner/kernel_call.h"

#include "laga/attention/dtype.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

namespace laga {

kernels::Workers torch_workers() {
  const int count = at::in_parallel_region() ? 1 : at::get_num_threads();
  return {count, [count](const std::function<void(int)>& body) {
            at::parallel_for(0, count, 1, [&](int64_t begin, int64_t end) {
              for (int64_t worker = begin; worker < end; ++worker)
                body(static_cast<int>(worker));
            });
          }};
}

at::Tensor kernel_scratch(int64_t bytes_per_worker, int workers) {
  return at::empty({bytes_per_worker * workers}, at::kByte);
}

kernels::MaskSlice mask_of(int64_t seq, bool causal) {
  return causal ? kernels::causal_mask(seq, seq) : kernels::full_mask(seq, seq);
}

at::Tensor empty_row_numbers(const at::Tensor& q) {
  return at::empty(
      {q.size(0), q.size(1), q.size(2)},
      q.options().dtype(accumulator_of(q.scalar_type())));
}

std::vector<at::Tensor> kept_rows(
    const at::Tensor& out,
    const at::Tensor& lse,
    const AttentionOptions& options) {
  if (options.delta_given) return {lse};
  return {out, lse};
}

RowNumbers found_rows(
    const std::vector<at::Tensor>& saved,
    const at::Tensor& d_out,
    const AttentionOptions& options) {
  if (options.delta_given) return {saved[0], saved[1]};
  const at::Tensor delta = empty_row_numbers(d_out);
  row_dots_out(delta, saved[0], d_out);
  return {saved[1], delta};
}

void row_dots_out(
    const at::Tensor& dots, const at::Tensor& x, const at::Tensor& y) {
  with_number(x, [&]<class T>(T) {
    kernels::row_dots<T>(
        view_of<const T>(x, x.size(2)),
        view_of<const T>(y, x.size(2)),
        numbers_of<Accumulator<T>>(dots),
        x.size(0),
        x.size(1),
        x.size(2),
        x.size(3));
  });
}

SharedGradient::SharedGradient(at::Tensor gradient)
    : gradient_(std::move(gradient)) {
  const at::ScalarType accumulator = accumulator_of(gradient_.scalar_type());
  if (gradient_.scalar_type() == accumulator) {
    sum_ = gradient_;
    sum_.zero_();
  } else {
    sum_ = at::zeros(gradient_.sizes(), gradient_.options().dtype(accumulator));
  }
}

void SharedGradient::finish() {
  if (!sum_.is_same(gradient_)) gradient_.copy_(sum_);
  sum_.reset();
}

} // namespace laga
