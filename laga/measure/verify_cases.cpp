#include "laga/measure/verification.h"

#include <utility>

namespace laga {

namespace {

// Every width differs from every other, so that a mix-up cannot fit.
MlaConfig base() {
  MlaConfig config;
  config.hidden_size = 88;
  config.num_heads = 8;
  config.q_lora_rank = 48;
  config.kv_lora_rank = 40;
  config.qk_nope_head_dim = 24;
  config.qk_rope_head_dim = 16;
  config.v_head_dim = 20;
  return config;
}

// DeepSeek's factor over a context short enough that all three regions of the
// blend (kept, blended, slowed down) are among the few pairs.
Yarn yarn(std::optional<double> mscale, std::optional<double> all_dim) {
  Yarn yarn;
  yarn.factor = 40;
  yarn.original_max_position_embeddings = 64;
  yarn.beta_fast = 8;
  yarn.mscale = mscale;
  yarn.mscale_all_dim = all_dim;
  return yarn;
}

template <typename Change>
VerifyCase changed(std::string name, const Change& change) {
  VerifyCase result{name, base(), 32, 2, {1, 2, 4, 8}};
  result.config.name = std::move(name);
  change(result);
  return result;
}

} // namespace

std::vector<VerifyCase> verify_cases(bool quick) {
  std::vector<VerifyCase> cases;
  const auto add = [&](const char* name, const auto& change) {
    cases.push_back(changed(name, change));
  };
  add("yarn-unequal-mscales-bias-batch-3", [](VerifyCase& c) {
    c.config.yarn = yarn(1.0, 0.707);
    c.config.attention_bias = true;
    c.batch = 3;
  });
  add("no-q-lora", [](VerifyCase& c) { c.config.q_lora_rank = 0; });
  if (quick) {
    for (VerifyCase& a_case : cases)
      a_case.ranks = {1, 2, 4};
    return cases;
  }
  add("base", [](VerifyCase&) {});
  add("half-split-rope",
      [](VerifyCase& c) { c.config.rope = RopeLayout::kHalfSplit; });
  add("no-rope", [](VerifyCase& c) { c.config.rope = RopeLayout::kNone; });
  add("yarn-equal-mscales",
      [](VerifyCase& c) { c.config.yarn = yarn(1.0, 1.0); });
  add("yarn-no-mscales",
      [](VerifyCase& c) { c.config.yarn = yarn(std::nullopt, std::nullopt); });
  add("yarn-attention-factor", [](VerifyCase& c) {
    c.config.yarn = yarn(1.0, 0.707);
    c.config.yarn->attention_factor = 1.3;
  });
  add("bias", [](VerifyCase& c) { c.config.attention_bias = true; });
  add("v-wider-than-nope", [](VerifyCase& c) { c.config.v_head_dim = 52; });
  add("batch-3", [](VerifyCase& c) { c.batch = 3; });
  add("positions-by-sequence", [](VerifyCase& c) {
    c.batch = 3;
    c.position_shift = 7;
  });
  add("full-attention", [](VerifyCase& c) { c.causal = false; });
  add("overridden-scale-and-eps", [](VerifyCase& c) {
    c.config.softmax_scale = 0.3;
    c.config.latent_norm_eps = 1e-3;
  });
  add("24-heads", [](VerifyCase& c) {
    c.config.num_heads = 24;
    c.seq = 48;
    c.ranks = {1, 2, 3, 4, 8};
  });
  add("15-heads", [](VerifyCase& c) {
    c.config.num_heads = 15;
    c.seq = 45;
    c.ranks = {1, 3, 5};
  });
  return cases;
}

} // namespace laga
