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
  bool send_delta = false;
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
  std::string inner = ""; // empty: default_inner(form)
  /// delta = rowsum(out d_out) is formed where the output returned to, and sent
  /// along with its gradient, so that the output need not be kept a second time
  /// where it was made: h (v + accumulator) numbers a token less saved, one
  /// accumulator a head and token more sent in the backward. For inner
  /// attentions that keep the output.
  bool send_delta = false;
  /// Position of every token of the whole sequence, [S] or [S, b], int64;
  /// undefined: 0, 1, 2, ...
  at::Tensor positions = {};
};

/// Throws InvalidArgument, before anything is sent, where the model cannot be
/// computed with, the form cannot run the shape or use the inner attention, or
/// the group's size is not shape.ranks.
Context make_context(
    const MlaConfig& config,
    const Form& form,
    const RunShape& shape,
    std::shared_ptr<Communicator> comm,
    const ContextOptions& options = {});

} // namespace laga
