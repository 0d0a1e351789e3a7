// The front: arguments are checked once, then workers claim heads until none is
// left.
#include "laga/kernels/attention.h"

#include "laga/core/check.h"
#include "laga/kernels/arguments.h"
#include "laga/kernels/turns.h"

#include <cstddef>
#include <exception>
#include <thread>

namespace laga::kernels {

namespace {

void check_workers(
    const char* function,
    const Workers& workers,
    const void* scratch,
    int64_t worker_bytes) {
  constexpr uintptr_t kAlignment = 64; // a cache line, and AVX-512's registers
  std::string condition;
  const auto misaligned = reinterpret_cast<uintptr_t>(scratch) % kAlignment;
  if (workers.count < 1) {
    condition = detail::concat("workers.count >= 1 (", workers.count, " vs 1)");
  } else if (worker_bytes > 0 && scratch == nullptr) {
    condition = "scratch is given (null)";
  } else if (misaligned != 0) {
    condition = detail::concat(
        "scratch aligned (", misaligned, " vs ", kAlignment, ")");
  } else {
    return;
  }
  detail::throw_invalid(
      function,
      condition,
      detail::concat("A worker needs ", worker_bytes, " bytes of scratch"));
}

// Calls head_body(head, scratch of the worker) for all heads, in increasing
// order as they are claimed.
template <class HeadBody>
void for_each_head(
    const Workers& workers,
    int64_t heads,
    void* scratch,
    int64_t worker_bytes,
    Turns& turns,
    const HeadBody& head_body) {
  std::atomic<int64_t> claimed = 0;
  const std::function<void(int)> body = [&](int worker) {
    auto* const own = static_cast<std::byte*>(scratch) + worker * worker_bytes;
    try {
      for (int64_t head = claimed++; head < heads; head = claimed++) {
        if (turns.abandoned()) return;
        head_body(head, own);
      }
    } catch (const Abandoned&) {
      // Whoever abandoned the call throws.
    } catch (...) {
      turns.abandon();
      throw;
    }
  };
  if (workers.run) {
    workers.run(body);
  } else {
    for (int worker = 0; worker < workers.count; ++worker)
      body(worker);
  }
}

// What a call passes where no gradient is shared: nobody waits.
template <class T>
constexpr typename Kernels<T>::Turns kNoTurns{
    nullptr, [](void*, int64_t, int64_t) {}, [](void*, int64_t, int64_t) {}};

template <class T>
typename Kernels<T>::Turns in_order_of_heads(Turns& turns) {
  return {
      &turns,
      [](void* state, int64_t step, int64_t head) {
        static_cast<Turns*>(state)->wait(step, head);
      },
      [](void* state, int64_t step, int64_t head) {
        static_cast<Turns*>(state)->done(step, head);
      }};
}

template <class T>
bool heads_share_gradients(const BackwardParams<T>& p) {
  const auto shared = [](const GradientView<T>& gradient) {
    return gradient.add.data != nullptr && gradient.add.head == 0;
  };
  return p.heads > 1 && (p.kv_lora_rank > 0 || shared(p.d_k_pe) ||
                         shared(p.d_k_nope) || shared(p.d_v));
}

// Throws what the first worker that threw did, once all have returned.
void run_on_threads(int count, const std::function<void(int)>& body) {
  std::vector<std::exception_ptr> errors(static_cast<size_t>(count));
  const auto guarded = [&](int worker) {
    try {
      body(worker);
    } catch (...) {
      errors[static_cast<size_t>(worker)] = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> threads; // joined at the end of this block
    for (int worker = 1; worker < count; ++worker) {
      threads.emplace_back(guarded, worker);
    }
    guarded(0);
  }
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

} // namespace

Workers worker_threads(int count) {
  LAGA_CHECK_GE(count, 1, "Somebody has to compute");
  return {count, [count](const std::function<void(int)>& body) {
            run_on_threads(count, body);
          }};
}

template <class T>
void attention_forward(
    const Kernels<T>& k,
    const ForwardParams<T>& params,
    const Workers& workers,
    void* scratch) {
  check_forward(params);
  const int64_t worker_bytes = k.forward_scratch_bytes(params);
  check_workers(__func__, workers, scratch, worker_bytes);
  Turns turns(0); // outputs are per head
  for_each_head(
      workers,
      params.heads,
      scratch,
      worker_bytes,
      turns,
      [&](int64_t head, void* own) { k.forward_head(params, head, own); });
}

template <class T>
void attention_backward(
    const Kernels<T>& k,
    const BackwardParams<T>& params,
    const Workers& workers,
    void* scratch) {
  check_backward(params);
  const int64_t worker_bytes = k.backward_scratch_bytes(params);
  check_workers(__func__, workers, scratch, worker_bytes);
  const bool in_order = heads_share_gradients(params);
  Turns turns(in_order ? k.backward_steps(params) : 0);
  const auto passed = in_order ? in_order_of_heads<T>(turns) : kNoTurns<T>;
  for_each_head(
      workers,
      params.heads,
      scratch,
      worker_bytes,
      turns,
      [&](int64_t head, void* own) {
        k.backward_head(params, head, passed, own);
      });
}

MaskSlice causal_mask(int64_t q_tokens, int64_t k_tokens, int64_t offset) {
  return {0, q_tokens, 0, k_tokens, offset};
}

MaskSlice full_mask(int64_t q_tokens, int64_t k_tokens) {
  return {0, q_tokens, 0, k_tokens, MaskSlice::kFull};
}

#define LAGA_INSTANTIATE_(T)                                              \
  template void attention_forward(                                        \
      const Kernels<T>&, const ForwardParams<T>&, const Workers&, void*); \
  template void attention_backward(                                       \
      const Kernels<T>&, const BackwardParams<T>&, const Workers&, void*)
LAGA_INSTANTIATE_(Bf16);
LAGA_INSTANTIATE_(float);
LAGA_INSTANTIATE_(double);
#undef LAGA_INSTANTIATE_

} // namespace laga::kernels
