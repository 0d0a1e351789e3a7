#include "laga/plan/work.h"

namespace laga {

namespace {

// Forward, and in the backward the gradients of input and weight.
void add_gemm(
    std::vector<WorkPart>& work,
    const std::string& name,
    double rows,
    double in,
    double out,
    double copies = 1) {
  const double flops = 2 * rows * in * out;
  const double redundant = 1 - 1 / copies;
  work.push_back(
      {Phase::kForward, name, WorkKind::kGemm, flops, redundant * flops});
  for (const char* of : {" d_input", " d_weight"}) {
    work.push_back(
        {Phase::kBackward,
         name + of,
         WorkKind::kGemm,
         flops,
         redundant * flops});
  }
}

} // namespace

std::vector<WorkPart> projection_work(
    const MlaConfig& config,
    double tokens,
    double expanded_tokens,
    double expanded_heads,
    double copies) {
  const auto d = static_cast<double>(config.hidden_size);
  const auto heads = static_cast<double>(config.num_heads);
  const double q_width = heads * static_cast<double>(config.qk_head_dim());
  const auto q_lora = static_cast<double>(config.q_lora_rank);
  std::vector<WorkPart> work;
  if (q_lora > 0) {
    add_gemm(work, "q_a", tokens, d, q_lora);
    add_gemm(work, "q_b", tokens, q_lora, q_width);
  } else {
    add_gemm(work, "q", tokens, d, q_width);
  }
  const auto c = static_cast<double>(config.kv_lora_rank);
  add_gemm(
      work,
      "kv_a",
      tokens,
      d,
      c + static_cast<double>(config.qk_rope_head_dim));
  add_gemm(
      work,
      "kv_b",
      expanded_tokens,
      c,
      expanded_heads *
          static_cast<double>(config.qk_nope_head_dim + config.v_head_dim),
      copies);
  add_gemm(
      work, "o", tokens, heads * static_cast<double>(config.v_head_dim), d);
  return work;
}

std::vector<WorkPart> attention_work(
    const MlaConfig& config, ScoreSpace space, double heads, double pairs) {
  const bool latent = space == ScoreSpace::kLatent;
  const auto qk = static_cast<double>(
      (latent ? config.kv_lora_rank : config.qk_nope_head_dim) +
      config.qk_rope_head_dim);
  const auto v =
      static_cast<double>(latent ? config.kv_lora_rank : config.v_head_dim);
  const WorkKind kind = latent ? WorkKind::kAttentionInLatentSpace
                               : WorkKind::kAttentionInHeadSpace;
  return {
      {Phase::kForward, "attention", kind, 2 * (qk + v) * heads * pairs},
      {Phase::kBackward,
       "attention",
       kind,
       2 * (3 * qk + 2 * v) * heads * pairs}};
}

double visible_pairs(double queries, double keys, bool causal) {
  return causal ? queries * (keys + 1) / 2 : queries * keys;
}

std::vector<WorkPart> predict_work(
    const MlaConfig& config,
    const Form& form,
    std::string_view inner,
    const RunShape& shape,
    bool causal) {
  check_shape(config, form, shape);
  const auto S = static_cast<double>(shape.seq);
  const auto b = static_cast<double>(shape.batch);
  const auto n = static_cast<double>(config.num_heads);
  const double tokens = S / shape.ranks * b;
  const bool after_move = form.key == KeyPath::kLatent;
  std::vector<WorkPart> work = projection_work(
      config,
      tokens,
      after_move ? S * b : tokens,
      after_move ? n / shape.ranks : n);
  for (WorkPart& part : attention_work(
           config,
           form.space,
           n / shape.ranks,
           b * visible_pairs(S, S, causal)))
    work.push_back(std::move(part));
  if (inner == "stream" || inner == "stream-sdpa") {
    WorkPart again = work[0];
    for (const WorkPart& part : work) {
      if (part.name == "kv_b") again = part;
    }
    again.phase = Phase::kBackward;
    again.name = "kv_b again";
    again.redundant = again.flops;
    work.push_back(again);
  }
  return work;
}

double flops_in(const std::vector<WorkPart>& work, Phase phase) {
  double flops = 0;
  for (const WorkPart& part : work) {
    if (part.phase == phase) flops += part.flops;
  }
  return flops;
}

double redundant_flops(const std::vector<WorkPart>& work) {
  double flops = 0;
  for (const WorkPart& part : work)
    flops += part.redundant;
  return flops;
}

} // namespace laga
