// A small layer for tests, run over rank threads.
#pragma once

#include "laga/attention/inner/inner.h"
#include "laga/measure/layer_run.h"
#include "laga/plan/bytes.h"
#include "laga/reference/mla.h"

#include <ATen/ops/arange.h>

#include <algorithm>
#include <string>
#include <vector>

namespace laga {

inline MlaConfig small_config() {
  MlaConfig config;
  config.name = "small";
  config.hidden_size = 72;
  config.num_heads = 8;
  config.q_lora_rank = 48;
  config.kv_lora_rank = 40;
  config.qk_nope_head_dim = 24;
  config.qk_rope_head_dim = 16;
  config.v_head_dim = 20;
  return config;
}

/// The setting of the paper's fp32 checks (section 4.5).
inline MlaConfig paper_check_config() {
  MlaConfig config;
  config.name = "d 512, 16 heads";
  config.hidden_size = 512;
  config.num_heads = 16;
  config.kv_lora_rank = 512;
  config.qk_nope_head_dim = 128;
  config.qk_rope_head_dim = 64;
  config.v_head_dim = 128;
  return config;
}

/// The forms that can use an inner attention.
inline std::vector<Form> forms_for(const std::string& inner) {
  std::vector<Form> forms;
  for (const Form& form : kForms) {
    const std::vector<std::string> usable = inners_for(form);
    const bool fits =
        std::find(usable.begin(), usable.end(), inner) != usable.end();
    if (fits) forms.push_back(form);
  }
  return forms;
}

inline NamedResults solve_reference(
    const MlaConfig& config, const LayerInputs& inputs, at::ScalarType dtype) {
  reference::Problem problem;
  problem.config = config;
  problem.hidden = inputs.hidden;
  problem.grad_output = inputs.grad_output;
  problem.positions = at::arange(inputs.hidden.size(0), at::kLong);
  for (const auto& [name, tensor] : named(inputs.weights)) {
    problem.weights[name] = tensor;
  }
  return reference::solve(reference::converted(problem, dtype));
}

/// Of a parameter: GoogleTest knows letters, digits and underscores.
inline std::string test_name(std::string name) {
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

} // namespace laga
