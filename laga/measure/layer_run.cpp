#include "laga/measure/layer_run.h"

#include "laga/attention/attention.h"
#include "laga/attention/memory.h"
#include "laga/attention/weight_gradients.h"
#include "laga/comm/ghost/ghost.h"
#include "laga/comm/threads/threads.h"
#include "laga/core/check.h"
#include "laga/measure/collect.h"

#include <ATen/Parallel.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <chrono>
#include <utility>

namespace laga {

namespace {

// Seconds of `step`, begun and ended by all ranks together.
template <typename Step>
double timed(Communicator& comm, Phase phase, const Step& step) {
  comm.barrier({phase, "begin"});
  const auto begin = std::chrono::steady_clock::now();
  step();
  comm.barrier({phase, "end"});
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin)
      .count();
}

RankRun run_once(
    const LayerTask& task,
    const LayerInputs& shard,
    const std::shared_ptr<Communicator>& comm) {
  const Context context =
      make_context(task.config, task.form, task.shape, comm, task.options);
  const Weights leaves = as_leaves(shard.weights);
  const at::Tensor hidden = shard.hidden.detach().requires_grad_(true);

  RankRun run;
  MemoryAccount& account = MemoryAccount::open();
  const ChargeTo charge(&account);
  at::Tensor output;
  run.seconds.forward = timed(*comm, Phase::kForward, [&] {
    output = mla_attention(hidden, leaves, context);
  });
  run.memory.saved = account.current(MemoryUse::kActivations);
  run.seconds.backward = timed(*comm, Phase::kBackward, [&] {
    torch::autograd::backward({output}, {shard.grad_output});
  });
  run.memory.peak = account.peak(MemoryUse::kActivations);
  run.memory.weight_gradients = account.current(MemoryUse::kWeightGradients);
  run.seconds.weight_gradients = timed(*comm, Phase::kWeightGradients, [&] {
    sum_weight_gradients(leaves, context);
  });
  run.seconds.waiting =
      context.ledger->seconds_waiting[static_cast<size_t>(Phase::kForward)] +
      context.ledger->seconds_waiting[static_cast<size_t>(Phase::kBackward)];
  run.output = output.detach();
  run.grad_hidden = hidden.grad();
  for (const auto& [name, leaf] : named(leaves)) {
    run.weight_gradients.push_back({name, leaf.grad()});
    run.memory.weights += static_cast<int64_t>(leaf.nbytes());
  }
  run.transfers = std::move(context.ledger->transfers);
  return run;
}

// A ledger must say the same thing every time.
void keep_fastest(RankRun& run, RankRun next) {
  LAGA_CHECK(
      run.transfers == next.transfers,
      "a repetition sent other bytes than the one before");
  const auto step = [](const PhaseSeconds& seconds) {
    return seconds.forward + seconds.backward;
  };
  if (step(run.seconds) < step(next.seconds)) next.seconds = run.seconds;
  run = std::move(next);
}

std::vector<int> nodes_of(const Communicator& comm) {
  std::vector<int> nodes;
  for (int rank = 0; rank < comm.size(); ++rank) {
    nodes.push_back(comm.node_of(rank));
  }
  return nodes;
}

} // namespace

LayerInputs make_inputs(
    const MlaConfig& config,
    int64_t seq,
    int64_t batch,
    Dtype dtype,
    uint64_t seed) {
  const std::vector<int64_t> sizes{seq, batch, config.hidden_size};
  return {
      make_weights(config, dtype, seed),
      make_normal(sizes, dtype, seed, "hidden_states"),
      make_normal(sizes, dtype, seed, "grad_output")};
}

RankRun run_rank(
    const LayerTask& task,
    const LayerInputs& shard,
    const std::shared_ptr<Communicator>& comm) {
  RankRun run = run_once(task, shard, comm);
  for (int i = 1; i < task.repeat; ++i) {
    keep_fastest(run, run_once(task, shard, comm));
  }
  return run;
}

LayerInputs shard_of(
    const LayerInputs& whole, const RunShape& shape, int rank) {
  const int64_t s = shape.local_seq();
  return {
      whole.weights,
      whole.hidden.narrow(0, rank * s, s),
      whole.grad_output.narrow(0, rank * s, s)};
}

std::optional<LayerRun> run_on(
    const LayerTask& task,
    const LayerInputs& inputs,
    const std::shared_ptr<Communicator>& comm) {
  check_shape(task.config, task.form, task.shape);
  std::optional<LayerRun> layer = collect(
      run_rank(task, shard_of(inputs, task.shape, comm->rank()), comm), *comm);
  if (layer) layer->node_of = nodes_of(*comm);
  return layer;
}

int threads_of_a_rank(int ranks) {
  return std::max(1, at::get_num_threads() / ranks);
}

LayerRun run_on_threads(
    const LayerTask& task,
    const LayerInputs& inputs,
    const ThreadRunOptions& options) {
  // Here as well as in each rank, so that the message comes once.
  check_shape(task.config, task.form, task.shape);
  const int threads = threads_of_a_rank(task.shape.ranks);
  // Shared, because a rank that run_ranks leaves behind may still write here.
  const auto result = std::make_shared<LayerRun>();
  run_ranks(
      {task.shape.ranks, options.deadline_s, options.node_of},
      [result, task, inputs, threads](
          const std::shared_ptr<Communicator>& comm) {
        at::set_num_threads(threads);
        std::optional<LayerRun> layer = run_on(task, inputs, comm);
        if (layer) *result = std::move(*layer);
      });
  return std::move(*result);
}

LayerRun run_ghost(
    const LayerTask& task,
    const LayerInputs& shard,
    int rank,
    std::vector<int> node_of) {
  check_shape(task.config, task.form, task.shape);
  const int ranks = task.shape.ranks;
  const auto ghost = make_ghost(rank, ranks, std::move(node_of));
  // The threads that the rank has beside its peers: kernels hold scratch for
  // each.
  const int all_threads = at::get_num_threads();
  at::set_num_threads(threads_of_a_rank(ranks));
  RankRun run = run_rank(task, shard, ghost);
  at::set_num_threads(all_threads);
  LayerRun layer;
  layer.transfers.push_back(std::move(run.transfers));
  layer.memory.push_back(run.memory);
  layer.seconds = run.seconds;
  layer.first_rank = rank;
  layer.node_of = nodes_of(*ghost);
  return layer;
}

} // namespace laga
