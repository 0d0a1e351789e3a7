#include "laga/plan/bytes.h"

#include "laga/core/check.h"

#include <functional>
#include <utility>

namespace laga {

namespace {

class Prediction {
 public:
  Prediction(
      const MlaConfig& config,
      const Form& form,
      const RunShape& shape,
      const Place& place,
      const SendOptions& options)
      : config_(config),
        form_(form),
        shape_(shape),
        place_(place),
        options_(options) {}

  std::vector<Transfer> run() {
    moves(Phase::kForward, "");
    moves(Phase::kBackward, "d_");
    if (options_.send_delta) {
      const int64_t accumulator = shape_.dtype == Dtype::kFp64 ? 8 : 4;
      all_to_all(Phase::kBackward, "d_lse", 1, accumulator);
    }
    weight_gradients();
    return std::move(transfers_);
  }

 private:
  // Every all-to-all is its own inverse, and a gather's is a reduce-scatter of
  // the same shards: the backward mirrors the forward.
  void moves(Phase phase, const std::string& prefix) {
    const int64_t c = config_.kv_lora_rank;
    const int64_t r = config_.qk_rope_head_dim;
    const int64_t nope_v = config_.qk_nope_head_dim + config_.v_head_dim;
    switch (form_.key) {
      case KeyPath::kHeads:
        all_to_all(phase, prefix + "kv", nope_v);
        all_to_all(phase, prefix + "k_pe", r);
        break;
      case KeyPath::kHeadsCompact:
        all_to_all(phase, prefix + "kv", nope_v);
        gather(phase, prefix + "k_pe", r);
        break;
      case KeyPath::kLatent:
        gather(phase, prefix + "latent", c + r);
        break;
    }
    all_to_all(phase, prefix + "q", config_.qk_head_dim());
    all_to_all(phase, prefix + "out", config_.v_head_dim);
  }

  void all_to_all(Phase phase, std::string name, int64_t width) {
    all_to_all(phase, std::move(name), width, size_of(shape_.dtype));
  }
  // `width` numbers of each head of each token; a peer gets its heads.
  void all_to_all(
      Phase phase, std::string name, int64_t width, int64_t number_bytes) {
    const int64_t to_a_peer = tokens() * (config_.num_heads / ranks()) * width;
    add(
        phase,
        std::move(name),
        "all_to_all",
        [=](int) { return to_a_peer; },
        to_a_peer * (ranks() - 1),
        number_bytes);
  }

  // `width` numbers of each token go to everybody, or come back as sums.
  void gather(Phase phase, std::string name, int64_t width) {
    const int64_t shard = tokens() * width;
    add(
        phase,
        std::move(name),
        phase == Phase::kForward ? "all_gather" : "reduce_scatter",
        [=](int) { return shard; },
        shard,
        size_of(shape_.dtype));
  }

  // Every form leaves a partial sum of each weight's gradient on each rank,
  // but for kv_b_proj where ranks expand their own heads only: there the rows
  // have one owner and are gathered.
  void weight_gradients() {
    for (const Parameter& parameter : parameters(config_)) {
      const int64_t count = parameter.numel();
      const bool rows_have_one_owner =
          form_.key == KeyPath::kLatent && parameter.name == "kv_b_proj.weight";
      if (rows_have_one_owner) {
        const int64_t shard = count / ranks();
        add(
            Phase::kWeightGradients,
            parameter.name,
            "all_gather",
            [=](int) { return shard; },
            shard,
            size_of(shape_.dtype));
      } else {
        const int64_t own = share(count, place_.rank);
        add(
            Phase::kWeightGradients,
            parameter.name,
            "all_reduce",
            [=, this](int peer) { return share(count, peer) + own; },
            2 * own,
            size_of(shape_.dtype));
      }
    }
  }

  // Shares of a reduced tensor differ by one where P does not divide it.
  int64_t share(int64_t count, int rank) const {
    return count / ranks() + (rank < count % ranks() ? 1 : 0);
  }

  void add(
      Phase phase,
      std::string name,
      std::string op,
      const std::function<int64_t(int peer)>& numbers_to,
      int64_t payload_numbers,
      int64_t number_bytes) {
    if (ranks() == 1) return;
    Transfer transfer{phase, std::move(name), std::move(op), "world", 0, 0, 0};
    for (int peer = 0; peer < ranks(); ++peer) {
      if (peer == place_.rank) continue;
      transfer.bytes_sent += numbers_to(peer) * number_bytes;
      if (node(peer) != node(place_.rank)) {
        transfer.bytes_sent_across_nodes += numbers_to(peer) * number_bytes;
      }
    }
    transfer.payload_bytes = payload_numbers * number_bytes;
    transfers_.push_back(std::move(transfer));
  }

  int node(int rank) const {
    return place_.node_of.empty() ? 0 : place_.node_of[rank];
  }
  int ranks() const {
    return shape_.ranks;
  }
  int64_t tokens() const {
    return shape_.local_seq() * shape_.batch;
  }

  const MlaConfig& config_;
  const Form& form_;
  const RunShape& shape_;
  const Place& place_;
  const SendOptions& options_;
  std::vector<Transfer> transfers_;
};

} // namespace

std::vector<Transfer> predict_transfers(
    const MlaConfig& config,
    const Form& form,
    const RunShape& shape,
    const Place& place,
    const SendOptions& options) {
  check_shape(config, form, shape);
  LAGA_CHECK_GE(place.rank, 0, "of ", shape.ranks, " ranks");
  LAGA_CHECK_LT(place.rank, shape.ranks, "of ", shape.ranks, " ranks");
  LAGA_CHECK(
      place.node_of.empty() ||
          place.node_of.size() == static_cast<size_t>(shape.ranks),
      "a node for each of ",
      shape.ranks,
      " ranks, got ",
      place.node_of.size());
  return Prediction(config, form, shape, place, options).run();
}

} // namespace laga
