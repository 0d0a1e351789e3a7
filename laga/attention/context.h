// Everything of a run that is the same for every layer of a model.
#pragma once

#include "laga/attention/ledger.h"
#include "laga/comm/communicator.h"
#include "laga/core/run_shape.h"

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>

namespace laga {

struct InnerAttention;

struct Context {
  MlaConfig config;
  Form form;
  RunShape shape;
  std::shared_ptr<Communicator> comm;
  std::shared_ptr<Ledger> ledger;
  const InnerAttention* inner = nullptr;
  bool causal = true;
  double softmax_scale = 0;
  /// cos + i sin of this rank's GLOBAL positions, in the accumulator's
  /// precision: [s, 1 or b, 1, r / 2], complex. Undefined without RoPE.
  at::Tensor rotation;

  int64_t local_heads() const { // n / P
    return config.num_heads / shape.ranks;
  }
};

struct ContextOptions {
  bool causal = true;
  std::string inner = "eager";
  /// Position of every token of the whole sequence, [S] or [S, b], int64;
  /// undefined: 0, 1, 2, ...
  at::Tensor positions;
};

/// Throws InvalidArgument, before anything is sent, where the model cannot be
/// computed with, the form cannot run the shape, or the group's size is not
/// shape.ranks.
Context make_context(
    const MlaConfig& config,
    const Form& form,
    const RunShape& shape,
    std::shared_ptr<Communicator> comm,
    const ContextOptions& options = {});

} // namespace laga
