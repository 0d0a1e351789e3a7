// Where the gradients of keys and values go, head by head.
#pragma once

#include "laga/attention/head_sum.h"
#include "laga/attention/inner/inner.h"

#include <optional>

namespace laga {

/// One sequence's k_nope, k_pe and v gradients: to each head's own rows, or,
/// where heads share, into sums over all heads that are rounded once at the end
/// (HeadSum). Where keys and values are the latent itself, one sum takes both.
class KeyValueGradients {
 public:
  /// `gradients` must outlive it; `heads` are those of the queries.
  KeyValueGradients(
      const AttentionGradients& gradients, int64_t b, int64_t heads);

  /// d_k [S, w + r], d_v [S, w_v]. Every head once, in their order.
  void add(int64_t head, const at::Tensor& d_k, const at::Tensor& d_v);

  /// Writes the sums; call it after the last head.
  void finish();

 private:
  void put(
      std::optional<HeadSum>& sum,
      const at::Tensor& gradient, // [S, b, h_kv, w]
      int64_t head,
      const at::Tensor& value); // [S, w]

  const AttentionGradients& gradients_;
  int64_t b_;
  bool latent_;
  std::optional<HeadSum> nope_sum_, pe_sum_, v_sum_; // [S, w], [S, r], [S, w_v]
};

} // namespace laga
