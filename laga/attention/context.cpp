#include "laga/attention/context.h"

#include "laga/attention/dtype.h"
#include "laga/attention/inner/inner.h"
#include "laga/attention/rotation.h"
#include "laga/core/check.h"
#include "laga/core/rope.h"

#include <ATen/ops/arange.h>

#include <utility>

namespace laga {

namespace {

// This rank's part of the positions of the WHOLE sequence.
at::Tensor local_positions(
    const at::Tensor& given, const RunShape& shape, int64_t rank) {
  at::Tensor positions = given;
  if (!positions.defined()) positions = at::arange(shape.seq, at::kLong);
  LAGA_CHECK(
      positions.dim() == 1 || positions.dim() == 2,
      "positions are [S] or [S, b], got ",
      positions.sizes());
  LAGA_CHECK_EQ(positions.size(0), shape.seq, "one position a token");
  if (positions.dim() == 2) {
    LAGA_CHECK_EQ(
        positions.size(1), shape.batch, "positions ", positions.sizes());
  }
  return positions.narrow(0, rank * shape.local_seq(), shape.local_seq());
}

} // namespace

Context make_context(
    const MlaConfig& config,
    const Form& form,
    const RunShape& shape,
    std::shared_ptr<Communicator> comm,
    const ContextOptions& options) {
  require_computable(config);
  check_shape(config, form, shape);
  LAGA_CHECK_EQ(comm->size(), shape.ranks, "group ", comm->name());
  Context context;
  context.config = config;
  context.form = form;
  context.shape = shape;
  context.ledger = std::make_shared<Ledger>();
  context.inner = &find_inner(
      options.inner.empty() ? default_inner(form) : options.inner, form);
  LAGA_CHECK(
      !options.send_delta || context.inner->takes_delta,
      "inner attention '",
      context.inner->name,
      "' cannot be given delta. ",
      default_inner(form),
      " can");
  context.causal = options.causal;
  context.send_delta = options.send_delta;
  context.softmax_scale = softmax_scale(config);
  context.rotation = make_rotation(
      config,
      local_positions(options.positions, shape, comm->rank()),
      accumulator_of(torch_dtype(shape.dtype)));
  context.comm = std::move(comm);
  return context;
}

} // namespace laga
