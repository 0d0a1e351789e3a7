#include "laga/measure/collect.h"

#include "laga/attention/buffers.h"
#include "laga/core/check.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

namespace laga {

namespace {

using Json = nlohmann::json;
using Buffer = std::vector<std::byte>;

// Everybody's bytes at rank 0, by rank; nothing elsewhere.
std::vector<Buffer> gather_to_root(
    Communicator& comm, const std::string& name, ConstBytes mine) {
  const auto ranks = static_cast<size_t>(comm.size());
  const Label label{Phase::kWeightGradients, "collect " + name};
  const int64_t own_length = static_cast<int64_t>(mine.size());
  std::vector<int64_t> lengths(ranks);
  std::vector<Part> parts;
  for (size_t p = 0; p < ranks; ++p) {
    parts.push_back(
        {static_cast<int64_t>(p * sizeof(int64_t)), sizeof(int64_t)});
  }
  comm.all_gather(
          label,
          std::as_bytes(std::span(&own_length, 1)),
          std::as_writable_bytes(std::span(lengths)),
          parts)
      ->wait();

  const bool root = comm.rank() == 0;
  std::vector<Part> to(ranks), from(ranks);
  to[0] = {0, own_length};
  int64_t total = 0;
  for (size_t p = 0; root && p < ranks; ++p) {
    from[p] = {total, lengths[p]};
    total += lengths[p];
  }
  Buffer all(static_cast<size_t>(total));
  comm.all_to_all(label, mine, to, all, from)->wait();
  std::vector<Buffer> buffers;
  for (size_t p = 0; root && p < ranks; ++p) {
    const auto begin = all.begin() + from[p].offset;
    buffers.emplace_back(begin, begin + from[p].bytes);
  }
  return buffers;
}

// The shards of [S, b, d], in rank order, put together at rank 0.
at::Tensor gather_sequence(
    Communicator& comm, const std::string& name, const at::Tensor& shard) {
  const at::Tensor mine = shard.contiguous();
  std::vector<at::Tensor> shards;
  for (const Buffer& buffer : gather_to_root(comm, name, bytes_of(mine))) {
    shards.push_back(at::empty(mine.sizes(), mine.options()));
    std::copy(
        buffer.begin(), buffer.end(), mutable_bytes_of(shards.back()).begin());
  }
  return shards.empty() ? at::Tensor() : at::cat(shards);
}

Json to_json(const Transfer& t) {
  return {
      static_cast<int>(t.phase),
      t.name,
      t.op,
      t.group,
      t.bytes_sent,
      t.bytes_sent_across_nodes,
      t.payload_bytes};
}

Transfer transfer_from(const Json& json) {
  return {
      static_cast<Phase>(json.at(0).get<int>()),
      json.at(1),
      json.at(2),
      json.at(3),
      json.at(4),
      json.at(5),
      json.at(6)};
}

// All figures of a rank, and a digest of each weight gradient.
Json figures_of(const RankRun& run) {
  Json transfers = Json::array();
  for (const Transfer& transfer : run.transfers) {
    transfers.push_back(to_json(transfer));
  }
  Json digests = Json::object();
  for (const auto& [name, tensor] : run.weight_gradients) {
    digests[name] = digest({{name, tensor}});
  }
  const PhaseSeconds& s = run.seconds;
  const MemoryBytes& m = run.memory;
  return {
      {"transfers", transfers},
      {"digests", digests},
      {"seconds", {s.forward, s.backward, s.weight_gradients, s.waiting}},
      {"memory", {m.saved, m.peak, m.weights, m.weight_gradients}}};
}

void add_figures(const Json& figures, LayerRun& layer) {
  std::vector<Transfer>& transfers = layer.transfers.emplace_back();
  for (const Json& transfer : figures.at("transfers")) {
    transfers.push_back(transfer_from(transfer));
  }
  const Json& memory = figures.at("memory");
  layer.memory.push_back(
      {memory.at(0), memory.at(1), memory.at(2), memory.at(3)});
  const Json& seconds = figures.at("seconds");
  size_t i = 0;
  for (double* largest :
       {&layer.seconds.forward,
        &layer.seconds.backward,
        &layer.seconds.weight_gradients,
        &layer.seconds.waiting}) {
    *largest = std::max(*largest, seconds.at(i++).get<double>());
  }
}

void add_disagreements(
    const Json& first, const Json& other, size_t rank, LayerRun& layer) {
  for (const auto& [name, value] : other.items()) {
    if (value == first.at(name)) continue;
    layer.disagreements.push_back(detail::concat(
        "grad.", name, ": rank ", rank, " and rank 0 do not agree"));
  }
}

} // namespace

std::optional<LayerRun> collect(RankRun run, Communicator& comm) {
  const std::string figures = figures_of(run).dump();
  const std::vector<Buffer> texts =
      gather_to_root(comm, "figures", std::as_bytes(std::span(figures)));
  LayerRun layer;
  layer.results["output"] = gather_sequence(comm, "output", run.output);
  layer.results["grad.hidden_states"] =
      gather_sequence(comm, "grad.hidden_states", run.grad_hidden);
  if (comm.rank() != 0) return std::nullopt;

  for (auto& [name, tensor] : run.weight_gradients) {
    layer.results["grad." + name] = std::move(tensor);
  }
  Json first;
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    const auto* text = reinterpret_cast<const char*>(texts[rank].data());
    const Json rank_figures = Json::parse(text, text + texts[rank].size());
    if (rank == 0) first = rank_figures;
    add_figures(rank_figures, layer);
    add_disagreements(
        first.at("digests"), rank_figures.at("digests"), rank, layer);
  }
  return layer;
}

} // namespace laga
