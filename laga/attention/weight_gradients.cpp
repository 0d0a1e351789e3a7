#include "laga/attention/weight_gradients.h"

#include "laga/attention/buffers.h"
#include "laga/attention/memory.h"
#include "laga/comm/reduce.h"
#include "laga/core/check.h"

#include <ATen/ops/empty.h>

#include <algorithm>

namespace laga {

namespace {

void gather_rows(
    const std::string& name,
    const at::Tensor& gradient,
    const Context& context) {
  Communicator& comm = *context.comm;
  const Label label{Phase::kWeightGradients, name};
  const int64_t shard = static_cast<int64_t>(gradient.nbytes()) / comm.size();
  std::vector<Part> parts;
  for (int p = 0; p < comm.size(); ++p)
    parts.push_back({p * shard, shard});
  const auto wait = [&] {
    const Bytes all = mutable_bytes_of(gradient);
    const auto work = comm.all_gather(
        label, all.subspan(comm.rank() * shard, shard), all, parts);
    work->wait();
    return work->bytes_sent();
  };
  context.ledger->record(comm, label, "all_gather", wait, shard);
}

void sum(
    const std::string& name,
    const at::Tensor& gradient,
    const at::Tensor& scratch,
    const Context& context) {
  const Communicator& comm = *context.comm;
  const Label label{Phase::kWeightGradients, name};
  const auto wait = [&] {
    return all_reduce(
        context.comm,
        label,
        context.shape.dtype,
        mutable_bytes_of(gradient),
        mutable_bytes_of(scratch));
  };
  const int64_t own =
      share_of(gradient.numel(), comm.size(), comm.rank()).count;
  context.ledger->record(
      comm, label, "all_reduce", wait, 2 * own * gradient.element_size());
}

} // namespace

void sum_weight_gradients(const Weights& leaves, const Context& context) {
  if (context.shape.ranks == 1) return;
  const std::vector<NamedTensor> all = named(leaves);
  int64_t largest = 0;
  for (const auto& [name, leaf] : all) {
    LAGA_CHECK(
        leaf.grad().defined() && leaf.grad().is_contiguous(),
        name,
        " has no gradient: run the backward first");
    largest = std::max(largest, static_cast<int64_t>(leaf.nbytes()));
  }
  const ChargeWeightGradients charge;
  const at::Tensor scratch = at::empty(
      {std::min(largest, kReduceScratchBytes)},
      all[0].tensor.options().dtype(at::kByte));
  for (const auto& [name, leaf] : all) {
    if (context.form.key == KeyPath::kLatent && name == "kv_b_proj.weight") {
      gather_rows(name, leaf.grad(), context);
    } else {
      sum(name, leaf.grad(), scratch, context);
    }
  }
}

} // namespace laga
