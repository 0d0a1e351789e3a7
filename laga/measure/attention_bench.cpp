#include "laga/measure/attention_bench.h"

#include "laga/attention/dtype.h"
#include "laga/attention/inner/inner.h"
#include "laga/attention/inner/kernel_call.h"
#include "laga/attention/inner/nodes.h"
#include "laga/attention/projections.h"
#include "laga/core/rope.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/_scaled_dot_product_attention_math.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/randn.h>
#include <torch/csrc/autograd/autograd.h>

#include <chrono>
#include <cmath>
#include <memory>
#include <mutex>
#include <optional>
#include <tuple>

namespace laga {

namespace {

double visible_pairs(const AttentionProblem& p) {
  const auto seq = static_cast<double>(p.seq);
  return static_cast<double>(p.heads) * seq * (p.causal ? (seq + 1) / 2 : seq);
}

// Inputs [S, 1, ., w], drawn from one seed whatever the contender.
class Draw {
 public:
  explicit Draw(const AttentionProblem& p)
      : p_(p), generator_(at::make_generator<at::CPUGeneratorImpl>(p.seed)) {}

  at::Tensor operator()(std::vector<int64_t> sizes) {
    return at::randn(sizes, generator_, at::kFloat).to(torch_dtype(p_.dtype));
  }

 private:
  const AttentionProblem& p_;
  at::Generator generator_;
};

struct Inputs {
  explicit Inputs(const AttentionProblem& p) {
    const MlaConfig& c = p.config;
    Draw draw(p);
    q = draw({p.seq, 1, p.heads, c.qk_head_dim()});
    kv = draw({p.seq, 1, p.heads, c.qk_nope_head_dim + c.v_head_dim});
    k_pe = draw({p.seq, 1, 1, c.qk_rope_head_dim});
    d_out = draw({p.seq, 1, p.heads, c.v_head_dim});
    options = {softmax_scale(c), p.causal};
  }
  static AttentionTensors parts(
      const at::Tensor& q, const at::Tensor& kv, const at::Tensor& k_pe) {
    const int64_t nope = q.size(-1) - k_pe.size(-1);
    const auto queries = q.split_with_sizes({nope, k_pe.size(-1)}, -1);
    const auto keys = kv.split_with_sizes({nope, kv.size(-1) - nope}, -1);
    return {queries[0], queries[1], keys[0], k_pe, keys[1]};
  }

  at::Tensor q, kv, k_pe, d_out;
  AttentionOptions options;
};

// [S, 1, h, w] -> [1, h, S, W], contiguous, zeros on the right.
at::Tensor for_aten(const at::Tensor& x, int64_t width) {
  return at::constant_pad_nd(x, {0, width - x.size(-1)})
      .permute({1, 2, 0, 3})
      .contiguous();
}

at::Tensor whole_key(const Inputs& in) {
  const AttentionTensors parts = Inputs::parts(in.q, in.kv, in.k_pe);
  return at::cat(
      {parts.k_nope, parts.k_pe.expand({-1, -1, in.q.size(2), -1})}, -1);
}

Contender row_contender(
    const InnerAttention& row, const std::shared_ptr<Inputs>& in) {
  struct State {
    at::Tensor out, d_q, d_kv, d_k_pe;
    std::vector<at::Tensor> saved;
  };
  const auto state = std::make_shared<State>();
  state->out = at::empty_like(in->d_out);
  state->d_q = at::empty_like(in->q);
  state->d_kv = at::empty_like(in->kv);
  state->d_k_pe = at::empty_like(in->k_pe);
  return {
      std::string(row.name),
      [&row, in, state] {
        state->saved = row.forward(
            Inputs::parts(in->q, in->kv, in->k_pe), in->options, state->out);
      },
      [&row, in, state] {
        row.backward(
            Inputs::parts(in->q, in->kv, in->k_pe),
            in->options,
            state->saved,
            in->d_out,
            [&] {
              return Inputs::parts(state->d_q, state->d_kv, state->d_k_pe);
            });
      }};
}

Contender flash_contender(const std::shared_ptr<Inputs>& in) {
  struct State {
    at::Tensor q, k, v, d_out, out, lse;
  };
  const auto state = std::make_shared<State>();
  const AttentionTensors parts = Inputs::parts(in->q, in->kv, in->k_pe);
  const int64_t width = std::max(in->q.size(-1), parts.v.size(-1));
  state->q = for_aten(in->q, width);
  state->k = for_aten(whole_key(*in), width);
  state->v = for_aten(parts.v, width);
  state->d_out = for_aten(in->d_out, width);
  return {
      "ATen flash",
      [in, state] {
        std::tie(state->out, state->lse) =
            at::_scaled_dot_product_flash_attention_for_cpu(
                state->q,
                state->k,
                state->v,
                0,
                in->options.causal,
                std::nullopt,
                in->options.softmax_scale);
      },
      [in, state] {
        at::_scaled_dot_product_flash_attention_for_cpu_backward(
            state->d_out,
            state->q,
            state->k,
            state->v,
            state->out,
            state->lse,
            0,
            in->options.causal,
            std::nullopt,
            in->options.softmax_scale);
      }};
}

Contender math_contender(const std::shared_ptr<Inputs>& in) {
  struct State {
    at::Tensor q, k, v, d_out, out;
  };
  const auto state = std::make_shared<State>();
  const AttentionTensors parts = Inputs::parts(in->q, in->kv, in->k_pe);
  state->q = for_aten(in->q, in->q.size(-1)).requires_grad_();
  state->k = for_aten(whole_key(*in), in->q.size(-1)).requires_grad_();
  state->v = for_aten(parts.v, parts.v.size(-1)).requires_grad_();
  state->d_out = for_aten(in->d_out, parts.v.size(-1));
  return {
      "ATen math",
      [in, state] {
        state->out = std::get<0>(at::_scaled_dot_product_attention_math(
            state->q,
            state->k,
            state->v,
            std::nullopt,
            0,
            in->options.causal,
            std::nullopt,
            in->options.softmax_scale));
      },
      [state] {
        torch::autograd::grad(
            {state->out}, {state->q, state->k, state->v}, {state->d_out});
        state->out.reset();
      }};
}

struct LatentInputs : Inputs {
  explicit LatentInputs(const AttentionProblem& p) : Inputs(p) {
    Draw draw(p);
    const MlaConfig& c = p.config;
    latent = draw({p.seq, 1, c.kv_lora_rank + c.qk_rope_head_dim});
    // So that keys and values have about unit variance.
    kv_b = draw({kv.size(2) * kv.size(3), c.kv_lora_rank}) /
           std::sqrt(static_cast<double>(c.kv_lora_rank));
    for (at::Tensor* leaf : {&q, &latent, &kv_b})
      leaf->requires_grad_();
  }
  at::Tensor latent, kv_b, out;
};

Contender latent_contender(
    std::string name,
    const std::shared_ptr<LatentInputs>& in,
    const std::function<at::Tensor()>& attend) {
  const auto out = std::make_shared<at::Tensor>();
  return {
      std::move(name),
      [attend, out] { *out = attend(); },
      [in, out] {
        torch::autograd::grad(
            {*out}, {in->q, in->latent, in->kv_b}, {in->d_out});
        out->reset();
      }};
}

double seconds_of(const std::function<void()>& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  const std::chrono::duration<double> taken =
      std::chrono::steady_clock::now() - start;
  return taken.count();
}

// Each addition waits for the one before: one a cycle on every processor that
// the kernels know. The sum is the loop's own: one that the lambda captured
// would live in memory, and a store and load take longer than the addition.
double measure_clock() {
  constexpr int64_t kRounds = 2'000'000, kAdditions = 16;
  const double seconds = seconds_of([] {
    uint64_t sum = 0, step = 3;
    for (int64_t i = 0; i < kRounds; ++i) {
#pragma GCC unroll 16
      for (int64_t j = 0; j < kAdditions; ++j) {
        sum += step;
        asm volatile("" : "+r"(sum), "+r"(step));
      }
    }
  });
  return static_cast<double>(kRounds * kAdditions) / seconds;
}

template <class T>
double multiply_add_rate(
    const kernels::Kernels<T>& kernels, int64_t iterations, int threads) {
  double flops = 0;
  std::mutex mutex;
  const double seconds = seconds_of([&] {
    kernels::worker_threads(threads).run([&](int) {
      const double done = kernels.multiply_add_loop(iterations);
      const std::lock_guard lock(mutex);
      flops += done;
    });
  });
  return flops / seconds;
}

template <class T>
MachinePeak peak_of(int threads) {
  const auto& kernels = kernels::kernels<T>();
  MachinePeak peak;
  peak.isa = kernels.isa;
  peak.flops_per_instruction = kernels.flops_per_instruction;
  peak.clock_hz = measure_clock();
  // About 50 ms a thread.
  const auto iterations = static_cast<int64_t>(
      0.05 * peak.clock_hz * peak.flops_per_instruction /
      kernels.multiply_add_loop(1));
  peak.flops_per_s_alone = multiply_add_rate(kernels, iterations, 1);
  peak.flops_per_s = multiply_add_rate(kernels, iterations, threads);
  return peak;
}

} // namespace

double useful_flops_forward(const AttentionProblem& p) {
  return 2 * visible_pairs(p) *
         static_cast<double>(p.config.qk_head_dim() + p.config.v_head_dim);
}

double useful_flops_backward(const AttentionProblem& p) {
  return 2 * visible_pairs(p) *
         static_cast<double>(
             3 * p.config.qk_head_dim() + 2 * p.config.v_head_dim);
}

std::vector<Contender> attention_contenders(
    const AttentionProblem& problem, bool math) {
  const auto in = std::make_shared<Inputs>(problem);
  std::vector<Contender> contenders{
      row_contender(kFusedAttention, in),
      row_contender(kSdpaAttention, in),
      flash_contender(in)};
  if (math) contenders.push_back(math_contender(in));
  return contenders;
}

std::vector<Contender> latent_contenders(const AttentionProblem& problem) {
  const auto in = std::make_shared<LatentInputs>(problem);
  const auto expand = [in] {
    const auto parts = in->latent.split_with_sizes(
        {in->kv_b.size(1), in->latent.size(-1) - in->kv_b.size(1)}, -1);
    const at::Tensor kv = linear(parts[0].flatten(0, 1), in->kv_b, at::Tensor())
                              .view(in->kv.sizes());
    return head_attention(
               in->q, kv, parts[1].unsqueeze(2), kFusedAttention, in->options)
        .out;
  };
  const auto stream = [in] {
    return streamed_attention(
               in->q, in->latent, in->kv_b, kStreamAttention, in->options)
        .out;
  };
  return {
      latent_contender("expand + fused", in, expand),
      latent_contender("stream", in, stream)};
}

MachinePeak measure_peak(Dtype dtype, int threads) {
  switch (dtype) {
    case Dtype::kBf16:
      return peak_of<Bf16>(threads);
    case Dtype::kFp32:
      return peak_of<float>(threads);
    default:
      return peak_of<double>(threads);
  }
}

} // namespace laga
