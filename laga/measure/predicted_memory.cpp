#include "laga/measure/predicted_memory.h"

#include "laga/attention/inner/inner.h"
#include "laga/kernels/attention.h"

#include <string>

namespace laga {

namespace {

std::string inner_of(const LayerTask& task) {
  return task.options.inner.empty() ? std::string(default_inner(task.form))
                                    : task.options.inner;
}

template <class Params>
Params sizes_of(const LayerTask& task) {
  const MlaConfig& config = task.config;
  const bool latent_space = task.form.space == ScoreSpace::kLatent;
  Params sizes;
  sizes.batch = task.shape.batch;
  sizes.heads = config.num_heads / task.shape.ranks;
  sizes.q_tokens = sizes.k_tokens = task.shape.seq;
  sizes.nope = latent_space ? config.kv_lora_rank : config.qk_nope_head_dim;
  sizes.rope = config.qk_rope_head_dim;
  sizes.v_width = latent_space ? config.kv_lora_rank : config.v_head_dim;
  if (find_inner(inner_of(task)).forward_latent)
    sizes.kv_lora_rank = config.kv_lora_rank;
  return sizes;
}

template <class T>
void set_scratch(MemoryOptions& options, const LayerTask& task) {
  const kernels::Kernels<T>& k = kernels::kernels<T>();
  options.forward_scratch =
      k.forward_scratch_bytes(sizes_of<kernels::ForwardParams<T>>(task));
  options.backward_scratch =
      k.backward_scratch_bytes(sizes_of<kernels::BackwardParams<T>>(task));
}

} // namespace

MemoryOptions memory_options(const LayerTask& task, int threads) {
  MemoryOptions options;
  options.send_delta = task.options.send_delta;
  options.threads = threads;
  switch (task.shape.dtype) {
    case Dtype::kBf16:
      set_scratch<Bf16>(options, task);
      break;
    case Dtype::kFp32:
      set_scratch<float>(options, task);
      break;
    case Dtype::kFp64:
      set_scratch<double>(options, task);
      break;
  }
  return options;
}

MemoryTape predicted_memory(const LayerTask& task, int threads) {
  return predict_memory(
      task.config,
      task.form,
      inner_of(task),
      task.shape,
      memory_options(task, threads));
}

} // namespace laga
