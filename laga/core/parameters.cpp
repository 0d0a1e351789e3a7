// The attention's parameters in Hugging Face's names, layouts and order.
#include "laga/core/check.h"
#include "laga/core/config.h"

namespace laga {

int64_t Parameter::numel() const {
  int64_t count = 1;
  for (int64_t dim : shape) {
    LAGA_CHECK(
        !__builtin_mul_overflow(count, dim, &count),
        name,
        " has more numbers than int64 can count");
  }
  return count;
}

std::vector<Parameter> parameters(const MlaConfig& config) {
  const int64_t d = config.hidden_size;
  const int64_t n = config.num_heads;
  const int64_t c = config.kv_lora_rank;
  const int64_t q_rows = n * config.qk_head_dim();
  const int64_t kv_a_rows = c + config.qk_rope_head_dim;
  const int64_t kv_b_rows = n * (config.qk_nope_head_dim + config.v_head_dim);

  std::vector<Parameter> list;
  const auto add = [&](std::string name, std::vector<int64_t> shape) {
    list.push_back({std::move(name), std::move(shape)});
  };
  // The projections that read hidden_size or write it have a bias, if any has.
  const auto add_with_bias =
      [&](const std::string& name, int64_t rows, int64_t columns) {
        add(name + ".weight", {rows, columns});
        if (config.attention_bias) add(name + ".bias", {rows});
      };
  if (config.q_lora_rank > 0) {
    add_with_bias("q_a_proj", config.q_lora_rank, d);
    add("q_a_layernorm.weight", {config.q_lora_rank});
    add("q_b_proj.weight", {q_rows, config.q_lora_rank});
  } else {
    add("q_proj.weight", {q_rows, d}); // never a bias
  }
  add_with_bias("kv_a_proj_with_mqa", kv_a_rows, d);
  add("kv_a_layernorm.weight", {c});
  add("kv_b_proj.weight", {kv_b_rows, c});
  add_with_bias("o_proj", d, n * config.v_head_dim);
  return list;
}

} // namespace laga
