#include "laga/attention/rotation.h"

#include "laga/core/rope.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/polar.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/view_as_complex.h>

namespace laga {

at::Tensor make_rotation(
    const MlaConfig& config,
    const at::Tensor& positions,
    at::ScalarType accumulator) {
  if (config.rope == RopeLayout::kNone) return {};
  const at::Tensor frequencies =
      at::tensor(inverse_frequencies(config), at::kDouble);
  const at::Tensor angles =
      positions.to(at::kDouble).unsqueeze(-1) * frequencies;
  const at::Tensor amplitude = at::full_like(angles, rope_amplitude(config));
  const at::Tensor rotation =
      at::polar(amplitude, angles).to(at::toComplexType(accumulator));
  const int64_t batch = positions.dim() == 2 ? positions.size(1) : 1;
  return rotation.view({positions.size(0), batch, 1, frequencies.size(0)});
}

void rotate_(
    const at::Tensor& x,
    const at::Tensor& rotation,
    RopeLayout layout,
    bool transposed) {
  if (!rotation.defined()) return;
  const int64_t pairs = x.size(-1) / 2;
  const at::Tensor paired = layout == RopeLayout::kInterleaved
                                ? x.unflatten(-1, {pairs, 2})
                                : x.unflatten(-1, {2, pairs}).transpose(-1, -2);
  // The one temporary: x in the accumulator's precision.
  const at::Tensor turned = at::empty(
      paired.sizes(),
      paired.options().dtype(at::toRealValueType(rotation.scalar_type())));
  turned.copy_(paired);
  at::view_as_complex(turned).mul_(transposed ? rotation.conj() : rotation);
  paired.copy_(turned);
}

} // namespace laga
