// The two moves of sequence-parallel attention as autograd functions: the
// all-to-all, which is its own inverse, and the all-gather, whose backward is a
// reduce-scatter.
#pragma once

#include "laga/attention/context.h"

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>

namespace laga {

enum class Move {
  kAllToAll,  // [P, ...] -> [P, ...]: slice p goes to rank p
  kAllGather, // [s, ...] (any strides) -> [P s, ...]
};

class Exchange;

/// A move under way. Two autograd nodes: start and finish. In the backward,
/// finish starts the opposite move and start waits for it, so that whatever
/// the graph holds between the two (the projection of the queries) overlaps
/// with it in both directions.
class Pending {
 public:
  /// The moved tensor, once all of it has arrived. Throws CommError.
  at::Tensor finish() &&;

 private:
  friend Pending start(const at::Tensor&, Move, std::string, const Context&);

  at::Tensor buffer_;
  std::shared_ptr<Exchange> exchange_; // null for one rank: nothing moves
};

/// Starts to move x; `name` labels the transfer, "d_" + name its gradient's.
Pending start(
    const at::Tensor& x, Move move, std::string name, const Context& context);

/// An all-to-all whose forward moves nothing, because nobody reads its result:
/// a tensor shaped as x [P, ...] without memory of its own, whose gradient
/// travels as "d_" + name to where x is.
at::Tensor gradient_from_peers(
    const at::Tensor& x, std::string name, const Context& context);

} // namespace laga
