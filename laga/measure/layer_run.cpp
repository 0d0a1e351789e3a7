#include "laga/measure/layer_run.h"

#include "laga/attention/attention.h"
#include "laga/attention/memory.h"
#include "laga/attention/weight_gradients.h"
#include "laga/comm/threads/threads.h"
#include "laga/core/check.h"

#include <ATen/Parallel.h>
#include <ATen/ops/cat.h>
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
    const LayerInputs& inputs,
    const std::shared_ptr<Communicator>& comm) {
  const Context context =
      make_context(task.config, task.form, task.shape, comm, task.options);
  const int64_t s = task.shape.local_seq();
  const Weights leaves = as_leaves(inputs.weights);
  const at::Tensor hidden = inputs.hidden.narrow(0, comm->rank() * s, s)
                                .detach()
                                .requires_grad_(true);
  const at::Tensor grad_output =
      inputs.grad_output.narrow(0, comm->rank() * s, s);

  RankRun run;
  MemoryAccount& account = MemoryAccount::open();
  const ChargeTo charge(&account);
  at::Tensor output;
  run.seconds.forward = timed(*comm, Phase::kForward, [&] {
    output = mla_attention(hidden, leaves, context);
  });
  run.memory.saved = account.current(MemoryUse::kActivations);
  run.seconds.backward = timed(*comm, Phase::kBackward, [&] {
    torch::autograd::backward({output}, {grad_output});
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

using Digests = std::map<std::string, std::string>; // by weight

Digests digests_of(const RankRun& run) {
  Digests digests;
  for (const auto& [name, tensor] : run.weight_gradients) {
    digests[name] = digest({{name, tensor}});
  }
  return digests;
}

std::vector<std::string> disagreements(const std::vector<Digests>& ranks) {
  std::vector<std::string> lines;
  for (size_t rank = 1; rank < ranks.size(); ++rank) {
    for (const auto& [name, value] : ranks[rank]) {
      if (value == ranks[0].at(name)) continue;
      lines.push_back(detail::concat(
          "grad.", name, ": rank ", rank, " and rank 0 do not agree"));
    }
  }
  return lines;
}

// Puts the ranks' parts together.
LayerRun assembled(std::vector<RankRun> ranks) {
  LayerRun layer;
  for (const auto& [name, tensor] : ranks[0].weight_gradients) {
    layer.results["grad." + name] = tensor;
  }
  std::vector<at::Tensor> outputs, grads;
  for (RankRun& rank : ranks) {
    outputs.push_back(rank.output);
    grads.push_back(rank.grad_hidden);
    layer.transfers.push_back(std::move(rank.transfers));
    layer.memory.push_back(rank.memory);
    const auto largest = [&](double PhaseSeconds::*phase) {
      layer.seconds.*phase =
          std::max(layer.seconds.*phase, rank.seconds.*phase);
    };
    largest(&PhaseSeconds::forward);
    largest(&PhaseSeconds::backward);
    largest(&PhaseSeconds::weight_gradients);
    largest(&PhaseSeconds::waiting);
  }
  layer.results["output"] = at::cat(outputs);
  layer.results["grad.hidden_states"] = at::cat(grads);
  return layer;
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
    const LayerInputs& inputs,
    const std::shared_ptr<Communicator>& comm) {
  RankRun run = run_once(task, inputs, comm);
  for (int i = 1; i < task.repeat; ++i) {
    keep_fastest(run, run_once(task, inputs, comm));
  }
  return run;
}

LayerRun run_on_threads(
    const LayerTask& task, const LayerInputs& inputs, double deadline_s) {
  // Here rather than in each rank, so that the message comes once.
  check_shape(task.config, task.form, task.shape);
  const int threads =
      std::max(1, at::get_num_threads() / std::max(1, task.shape.ranks));
  // Shared, because a rank that run_ranks leaves behind may still write here.
  struct Results {
    std::vector<RankRun> ranks;
    std::vector<Digests> digests;
  };
  const auto results = std::make_shared<Results>();
  results->ranks.resize(task.shape.ranks);
  results->digests.resize(task.shape.ranks);
  run_ranks(
      {task.shape.ranks, deadline_s, {}},
      [results, task, inputs, threads](
          const std::shared_ptr<Communicator>& comm) {
        at::set_num_threads(threads);
        RankRun& run = results->ranks[comm->rank()];
        run = run_rank(task, inputs, comm);
        results->digests[comm->rank()] = digests_of(run);
        if (comm->rank() > 0) run.weight_gradients.clear();
      });
  LayerRun layer = assembled(std::move(results->ranks));
  layer.disagreements = disagreements(results->digests);
  return layer;
}

} // namespace laga
