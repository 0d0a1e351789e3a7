#include "laga/plan/planned_forms.h"

#include "laga/core/check.h"

#include <algorithm>

namespace laga {

namespace {

using Handle = TapeRecorder::Handle;

class Planner {
 public:
  Planner(
      const MlaConfig& config,
      const RunShape& shape,
      int ranks_per_node,
      bool causal)
      : config_(config),
        shape_(shape),
        node_(std::min(ranks_per_node, shape.ranks)),
        causal_(causal) {}

  PlannedForm kv_ring() {
    PlannedForm form{"kv ring"};
    // A rank sends to its right; the last of a node sends all of it across.
    const int64_t hops = ranks() - 1;
    send(form, Phase::kForward, "kv", "send", hops * kv(), hops * kv());
    const int64_t back = 2 * hops * kv(); // and their gradients
    send(form, Phase::kBackward, "d_kv", "send", back, back);
    form.work = local_projections();
    add_attention(form, n(), tokens(), seq());
    form.tape = ring_tape();
    return form;
  }

  PlannedForm kv_all_gather() {
    PlannedForm form{"kv all-gather"};
    gather(form, Phase::kForward, "kv", "all_gather", kv());
    gather(form, Phase::kBackward, "kv again", "all_gather", kv());
    gather(form, Phase::kBackward, "d_kv", "reduce_scatter", kv());
    form.work = local_projections();
    add_attention(form, n(), tokens(), seq());
    form.tape = local_heads_tape(
        {{"kv gathered", {seq_dim(), b(), n_dim(), kv_dim()}},
         {"d_kv of all tokens", {seq_dim(), b(), n_dim(), kv_dim()}}});
    return form;
  }

  PlannedForm kv_a2a_ring() {
    PlannedForm form{"kv a2a+p2p"};
    const int64_t nodes = ranks() / node_;
    if (nodes * node_ != ranks() || config_.num_heads % node_ != 0) {
      form.why_not = detail::concat(
          "needs heads and ranks to be multiples of a node's ",
          node_,
          " ranks");
      return form;
    }
    const int64_t hops = nodes - 1;
    for (const Phase phase : {Phase::kForward, Phase::kBackward}) {
      const std::string d = phase == Phase::kForward ? "" : "d_";
      exchange(form, phase, d + "q", n() * qk(), node_);
      exchange(form, phase, d + "kv", kv() / tokens(), node_);
      const int64_t ring = (phase == Phase::kForward ? 1 : 2) * hops * kv();
      send(form, phase, d + "kv round", "send", ring, ring);
      exchange(form, phase, d + "out", n() * v(), node_);
    }
    form.work = local_projections();
    add_attention(form, n(), tokens(), seq());
    form.tape = ring_tape();
    return form;
  }

  PlannedForm query_latent() {
    PlannedForm form{"query-latent"};
    if (config_.q_lora_rank == 0 || config_.num_heads % ranks() != 0) {
      form.why_not = config_.q_lora_rank == 0
                         ? "needs a model with q_lora_rank"
                         : "needs the ranks to divide the heads";
      return form;
    }
    const int64_t latent = config_.kv_lora_rank + config_.qk_rope_head_dim;
    for (const Phase phase : {Phase::kForward, Phase::kBackward}) {
      const bool forward = phase == Phase::kForward;
      const std::string d = forward ? "" : "d_";
      const char* op = forward ? "all_gather" : "reduce_scatter";
      gather(form, phase, d + "latent", op, latent * tokens());
      gather(form, phase, d + "q_latent", op, config_.q_lora_rank * tokens());
      exchange(form, phase, d + "out", n() * v(), ranks());
    }
    const double heads = static_cast<double>(n()) / ranks();
    form.work =
        projection_work(config_, flops(tokens()), flops(all_tokens()), heads);
    add_attention(form, heads, all_tokens(), seq());
    form.tape = latent_tape(
        {"S", shape_.seq}, {"n/P", config_.num_heads / ranks()}, true);
    return form;
  }

  PlannedForm grid() {
    const int64_t U = node_, R = ranks() / U;
    PlannedForm form{detail::concat("grid ", U, " x ", R)};
    if (R * U != ranks() || config_.num_heads % U != 0) {
      form.why_not = detail::concat(
          "needs heads and ranks to be multiples of a node's ", U, " ranks");
      return form;
    }
    const int64_t latent =
        (config_.kv_lora_rank + config_.qk_rope_head_dim) * tokens();
    for (const Phase phase : {Phase::kForward, Phase::kBackward}) {
      const bool forward = phase == Phase::kForward;
      const std::string d = forward ? "" : "d_";
      // A shard crosses to each other node once and is passed on inside it.
      send(
          form,
          phase,
          d + "latent",
          forward ? "all_gather" : "reduce_scatter",
          (ranks() - 1) * latent,
          (R - 1) * latent);
      exchange(form, phase, d + "q", n() * qk(), U);
      exchange(form, phase, d + "out", n() * v(), U);
    }
    const double heads = static_cast<double>(n()) / static_cast<double>(U);
    form.work = projection_work(
        config_,
        flops(tokens()),
        flops(all_tokens()),
        heads,
        static_cast<double>(R));
    add_attention(form, heads, tokens() * U, seq());
    form.tape = latent_tape(
        {"S/R", shape_.seq / R}, {"n/U", config_.num_heads / U}, false);
    return form;
  }

 private:
  // --- bytes

  void send(
      PlannedForm& form,
      Phase phase,
      const std::string& name,
      const char* op,
      int64_t numbers,
      int64_t across) {
    if (ranks() == 1) return;
    const int64_t bytes = size_of(shape_.dtype);
    form.transfers.push_back(
        {phase,
         name,
         op,
         "world",
         numbers * bytes,
         (ranks() > node_ ? across : 0) * bytes,
         numbers * bytes});
  }
  // Of a shard of `numbers`, to everybody.
  void gather(
      PlannedForm& form,
      Phase phase,
      const std::string& name,
      const char* op,
      int64_t numbers) {
    send(
        form,
        phase,
        name,
        op,
        (ranks() - 1) * numbers,
        (ranks() - node_) * numbers);
    if (!form.transfers.empty())
      form.transfers.back().payload_bytes = numbers * size_of(shape_.dtype);
  }
  // `width` numbers a token, dealt out over a group of ranks.
  void exchange(
      PlannedForm& form,
      Phase phase,
      const std::string& name,
      int64_t width,
      int64_t group) {
    const int64_t to_a_peer = tokens() * width / group;
    send(
        form,
        phase,
        name,
        "all_to_all",
        to_a_peer * (group - 1),
        group > node_ ? to_a_peer * (group - node_) : 0);
  }
  // --- work

  static double flops(int64_t x) {
    return static_cast<double>(x);
  }
  std::vector<WorkPart> local_projections() const {
    return projection_work(
        config_, flops(tokens()), flops(tokens()), flops(n()));
  }
  void add_attention(
      PlannedForm& form, double heads, int64_t queries, int64_t keys) const {
    for (const WorkPart& part : attention_work(
             config_,
             ScoreSpace::kHead,
             heads,
             visible_pairs(flops(queries), flops(keys), causal_))) {
      form.work.push_back(part);
    }
  }

  // --- memory

  struct Named {
    std::string name;
    std::vector<Dim> shape;
  };

  Handle make(const std::string& name, std::vector<Dim> shape) {
    return tape_.make(name, std::move(shape), size_of(shape_.dtype));
  }
  Handle make_wide(const std::string& name, std::vector<Dim> shape) {
    return tape_.make(
        name, std::move(shape), shape_.dtype == Dtype::kFp64 ? 8 : 4);
  }
  std::vector<Handle> latents_before_heads() {
    std::vector<Handle> kept{make(
        "latent before its norm",
        {s(), b(), {"c+r", config_.kv_lora_rank + config_.qk_rope_head_dim}})};
    if (config_.q_lora_rank > 0) {
      const Dim width{"q_lora", config_.q_lora_rank};
      kept.push_back(make("q_latent before its norm", {s(), b(), width}));
      kept.push_back(make("q_latent", {s(), b(), width}));
    }
    return kept;
  }
  MemoryTape finish(const std::vector<Named>& transient) {
    tape_.end_forward();
    std::vector<Handle> alive;
    for (const auto& [name, shape] : transient)
      alive.push_back(make(name, shape));
    MemoryTape tape = tape_.take();
    tape_ = TapeRecorder();
    return tape;
  }

  // Queries, keys and values of all heads of the local tokens.
  MemoryTape local_heads_tape(std::vector<Named> transient) {
    std::vector<Handle> kept = latents_before_heads();
    const Dim q_width{"nope+r", qk()}, v_width{"v", v()};
    kept.push_back(make(
        "latent",
        {s(), b(), {"c+r", config_.kv_lora_rank + config_.qk_rope_head_dim}}));
    kept.push_back(make("q", {s(), b(), n_dim(), q_width}));
    kept.push_back(make("kv", {s(), b(), n_dim(), kv_dim()}));
    kept.push_back(make("out", {s(), b(), n_dim(), v_width}));
    kept.push_back(make_wide("lse", {s(), b(), n_dim()}));
    kept.push_back(make("output", {s(), b(), {"d", config_.hidden_size}}));
    for (const Named& tensor : std::vector<Named>{
             {"d_out", {s(), b(), n_dim(), v_width}},
             {"d_q", {s(), b(), n_dim(), q_width}},
             {"d_kv", {s(), b(), n_dim(), kv_dim()}}}) {
      transient.push_back(tensor);
    }
    return finish(transient);
  }

  MemoryTape ring_tape() {
    const std::vector<Dim> shape{s(), b(), n_dim(), kv_dim()};
    return local_heads_tape(
        {{"kv arriving", shape},
         {"d_kv going round", shape},
         {"d_kv arriving", shape}});
  }

  // Heads of `tokens` tokens here, streamed from the gathered latent.
  MemoryTape latent_tape(const Dim& tokens, const Dim& heads, bool q_gathered) {
    std::vector<Handle> kept = latents_before_heads();
    const Dim q_width{"nope+r", qk()}, v_width{"v", v()};
    const Dim latent{"c+r", config_.kv_lora_rank + config_.qk_rope_head_dim};
    kept.push_back(make("latent, gathered", {seq_dim(), b(), latent}));
    if (q_gathered) {
      kept.push_back(make(
          "q_latent, gathered",
          {seq_dim(), b(), {"q_lora", config_.q_lora_rank}}));
    }
    kept.push_back(make("q", {tokens, b(), heads, q_width}));
    kept.push_back(make("out", {tokens, b(), heads, v_width}));
    kept.push_back(
        make("out, heads side by side", {s(), b(), n_dim(), v_width}));
    kept.push_back(make_wide("lse", {tokens, b(), heads}));
    kept.push_back(make("output", {s(), b(), {"d", config_.hidden_size}}));
    return finish(
        {{"d_out", {tokens, b(), heads, v_width}},
         {"d_q", {tokens, b(), heads, q_width}},
         {"d_latent", {seq_dim(), b(), latent}}});
  }

  // --- sizes

  int64_t ranks() const {
    return shape_.ranks;
  }
  int64_t seq() const {
    return shape_.seq;
  }
  int64_t tokens() const {
    return shape_.local_seq() * shape_.batch;
  }
  int64_t all_tokens() const {
    return shape_.seq * shape_.batch;
  }
  int64_t n() const {
    return config_.num_heads;
  }
  int64_t qk() const {
    return config_.qk_head_dim();
  }
  int64_t v() const {
    return config_.v_head_dim;
  }
  int64_t kv() const { // numbers of the local tokens
    return tokens() * n() * (qk() + v());
  }
  Dim seq_dim() const {
    return {"S", shape_.seq};
  }
  Dim s() const {
    return {"S/P", shape_.local_seq()};
  }
  Dim b() const {
    return {"b", shape_.batch};
  }
  Dim n_dim() const {
    return {"n", config_.num_heads};
  }
  Dim kv_dim() const {
    return {"nope+r+v", qk() + v()};
  }

  const MlaConfig& config_;
  const RunShape& shape_;
  int64_t node_; // ranks of a node that take part
  bool causal_;
  TapeRecorder tape_;
};

} // namespace

std::vector<PlannedForm> planned_forms(
    const MlaConfig& config,
    const RunShape& shape,
    int ranks_per_node,
    bool causal) {
  LAGA_CHECK_GT(shape.ranks, 0, "ranks");
  LAGA_CHECK(
      shape.seq % shape.ranks == 0,
      "sequence ",
      shape.seq,
      " does not divide over ",
      shape.ranks,
      " ranks");
  Planner planner(config, shape, ranks_per_node, causal);
  return {
      planner.kv_ring(),
      planner.kv_all_gather(),
      planner.kv_a2a_ring(),
      planner.query_latent(),
      planner.grid()};
}

} // namespace laga
