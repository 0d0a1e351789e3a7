// Queries, keys and values as the inner attentions look at them.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/as_strided.h>

#include <optional>
#include <vector>

namespace laga {

/// One head of one sequence: [S, b, h, w] -> [S, w]. A shared tensor has one.
inline at::Tensor panel(const at::Tensor& x, int64_t b, int64_t head) {
  return x.select(1, b).select(1, x.size(2) == 1 ? 0 : head);
}

/// a [..., w] and b [..., r] as one view [..., w + r] where b's numbers follow
/// a's in memory, row by row.
inline std::optional<at::Tensor> joined_view(
    const at::Tensor& a, const at::Tensor& b) {
  const bool adjacent =
      a.sizes().slice(0, a.dim() - 1) == b.sizes().slice(0, b.dim() - 1) &&
      a.strides() == b.strides() && a.is_alias_of(b) &&
      a.storage_offset() + a.size(-1) == b.storage_offset();
  if (!adjacent) return std::nullopt;
  std::vector<int64_t> sizes = a.sizes().vec();
  sizes.back() += b.size(-1);
  return a.as_strided(sizes, a.strides());
}

} // namespace laga
