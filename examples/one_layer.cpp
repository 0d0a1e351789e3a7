// One attention layer over four rank threads: forward, backward, and the sum of
// the weight gradients, as a training step would do it.
#include "laga/attention/attention.h"
#include "laga/attention/weight_gradients.h"
#include "laga/comm/threads/threads.h"

#include <ATen/core/Tensor.h>

#include <cstdio>

int main() {
  const laga::MlaConfig config = laga::load_config("deepseek-v2-lite");
  const laga::RunShape shape{
      .seq = 64, .batch = 1, .ranks = 4, .dtype = laga::Dtype::kBf16};
  const laga::Weights weights =
      laga::make_weights(config, shape.dtype, /*seed=*/0);

  laga::run_ranks({.ranks = 4}, [&](const auto& communicator) {
    const laga::Context context = laga::make_context(
        config, laga::find_form("laga"), shape, communicator);
    const laga::Weights leaves = laga::as_leaves(weights);
    const at::Tensor hidden = laga::make_normal(
        {shape.local_seq(), shape.batch, config.hidden_size},
        shape.dtype,
        /*seed=*/communicator->rank(),
        "hidden");

    const at::Tensor y = laga::mla_attention(hidden, leaves, context);
    y.sum().backward();
    laga::sum_weight_gradients(leaves, context);

    if (communicator->rank() != 0) return;
    for (const laga::Transfer& transfer : context.ledger->transfers) {
      std::printf(
          "%-16s %-26s %-14s %9lld bytes\n",
          name_of(transfer.phase),
          transfer.name.c_str(),
          transfer.op.c_str(),
          static_cast<long long>(transfer.bytes_sent));
    }
  });
}
