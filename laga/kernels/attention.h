// Attention at MLA's widths on the CPU, free of torch. The front checks the
// arguments and shares heads out among workers; an instruction set computes one
// head at a time. Results have the same bits for any number of workers.
//
// Source: the online softmax of FlashAttention-2 (arXiv 2307.08691); the paper
// (arXiv 2607.17644) leaves the fusion of LAGA's up-projection open.
#pragma once

#include "laga/kernels/matmul.h"
#include "laga/kernels/params.h"

#include <functional>
#include <string_view>
#include <vector>

namespace laga::kernels {

/// How a call is spread: run(body) calls body(worker) once for each worker in
/// 0 ... count - 1, at the same time or one after another, and returns when all
/// are done. A body that throws is the runner's to report.
struct Workers {
  int count = 1;
  std::function<void(const std::function<void(int)>&)> run; // null: in turn
};

/// The workers as threads of their own, made for the call.
Workers worker_threads(int count);

/// One instruction set's attention. Rows of a table; see kernels().
template <class T>
struct Kernels {
  std::string_view isa; // "ref", "portable", "avx512" or "avx512_bf16"

  /// Scratch that one worker needs, a multiple of 64.
  int64_t (*forward_scratch_bytes)(const ForwardParams<T>& params);
  int64_t (*backward_scratch_bytes)(const BackwardParams<T>& params);

  /// One head (0 ... heads - 1) of all sequences of the batch. `scratch` is
  /// aligned to 64 bytes. `in_turn` orders what heads add to shared gradients.
  void (*forward_head)(
      const ForwardParams<T>& params, int64_t head, void* scratch);
  struct Turns {
    void* state;
    /// Returns once all lower heads have called done() for this step. A head
    /// passes the steps 0, 1, 2, ... in this order.
    void (*wait)(void* state, int64_t step, int64_t head);
    void (*done)(void* state, int64_t step, int64_t head);
  };
  int64_t (*backward_steps)(const BackwardParams<T>& params);
  void (*backward_head)(
      const BackwardParams<T>& params,
      int64_t head,
      const Turns& turns,
      void* scratch);

  /// One tile of a product, for machines whose libraries have no fast product
  /// of bf16; null where they have. See matmul.h.
  int64_t (*matmul_scratch_bytes)() = nullptr;
  void (*matmul_tile)(
      const MatmulParams<T>& params, int64_t tile, void* scratch) = nullptr;

  /// Multiply-adds on registers only: the peak that the kernels could reach.
  /// Returns the floating-point operations done, two for each multiply-add.
  double (*multiply_add_loop)(int64_t iterations);
  /// Of one of its instructions.
  double flops_per_instruction = 2;
};

/// The fastest this machine can run for T, or what the environment variable
/// LAGA_ISA allows: ref | portable | avx512 | avx512_bf16, the highest that may
/// be used. Throws InvalidArgument where LAGA_ISA names none of them or one
/// that this machine cannot run.
template <class T>
const Kernels<T>& kernels();

/// All that this machine can run for T, slowest first.
template <class T>
std::vector<const Kernels<T>*> runnable_kernels();

/// Throws InvalidArgument, before anything is written, where sizes, strides,
/// mask or pointers cannot be meant. `scratch`: workers.count times
/// k.forward_scratch_bytes(params), aligned to 64 bytes.
template <class T>
void attention_forward(
    const Kernels<T>& k,
    const ForwardParams<T>& params,
    const Workers& workers,
    void* scratch);

/// The same for the backward, with k.backward_scratch_bytes(params).
template <class T>
void attention_backward(
    const Kernels<T>& k,
    const BackwardParams<T>& params,
    const Workers& workers,
    void* scratch);

/// delta[t, b, h] = sum over width of out * d_out, in the accumulator.
template <class T>
void row_dots(
    const View<const T>& out,
    const View<const T>& d_out,
    const View<Accumulator<T>>& delta,
    int64_t tokens,
    int64_t batch,
    int64_t heads,
    int64_t width);

/// One slice: key j is seen by query i if j <= i + offset; the causal mask of a
/// whole sequence where offset is 0.
MaskSlice causal_mask(int64_t q_tokens, int64_t k_tokens, int64_t offset = 0);
MaskSlice full_mask(int64_t q_tokens, int64_t k_tokens);

} // namespace laga::kernels
