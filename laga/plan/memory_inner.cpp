#include "laga/plan/memory_inner.h"

#include "laga/core/check.h"

#include <algorithm>
#include <array>
#include <string>

namespace laga {

namespace {

using Handle = TapeRecorder::Handle;

// "nope+r"
Dim sum(const Dim& a, const Dim& b) {
  return {a.name + "+" + b.name, a.size + b.size};
}

// Numbers are less exact than their sums.
bool rounded(const InnerProblem& on) {
  return on.number() < on.accumulator();
}

Handle log_sum_exp(TapeRecorder& tape, const InnerProblem& on) {
  return tape.make("lse", {on.seq, on.batch, on.heads}, on.accumulator());
}

// Gradients that heads share, in the accumulator's precision; empty where
// nothing is shared or the gradient itself has that precision.
std::vector<Handle> shared_sums(TapeRecorder& tape, const InnerProblem& on) {
  if (!rounded(on)) return {};
  if (on.latent_space) {
    return {tape.make(
        "d_latent sum", {on.seq, on.batch, on.key_width()}, on.accumulator())};
  }
  if (on.k_pe_shared && on.heads.size > 1) {
    return {
        tape.make("d_k_pe sum", {on.seq, on.batch, on.rope}, on.accumulator())};
  }
  return {};
}

// --- eager: b h score matrices

Handle scores(TapeRecorder& tape, const InnerProblem& on, std::string name) {
  return tape.make(
      std::move(name), {on.batch, on.heads, on.seq, on.seq}, on.number());
}

// Of one head, where nope and rope columns do not lie side by side: queries in
// latent space, keys in head space.
Handle joined(TapeRecorder& tape, const InnerProblem& on) {
  return tape.make(
      on.latent_space ? "q of one head" : "k of one head",
      {on.seq, on.key_width()},
      on.number());
}

std::vector<Handle> eager_forward(TapeRecorder& tape, const InnerProblem& on) {
  const Handle raw = scores(tape, on, "scores");
  joined(tape, on);
  if (on.causal) tape.make("future", {on.seq, on.seq}, 1);
  return {scores(tape, on, "probabilities")};
}

void eager_backward(
    TapeRecorder& tape,
    const InnerProblem& on,
    const std::function<void()>& make_gradients) {
  Handle d_probabilities = scores(tape, on, "d_probabilities");
  const Handle d_scores = scores(tape, on, "d_scores");
  d_probabilities.reset();
  make_gradients();
  std::vector<Handle> sums;
  if (on.latent_space) {
    sums.push_back(tape.make(
        "d_latent sum of one sequence", {on.seq, on.width}, on.accumulator()));
  }
  if (on.k_pe_shared && on.heads.size > 1) {
    sums.push_back(tape.make(
        "d_k_pe sum of one sequence", {on.seq, on.rope}, on.accumulator()));
  }
  const Handle one = joined(tape, on);
  const Handle d_q =
      tape.make("d_q of one head", {on.seq, on.key_width()}, on.number());
  const Handle d_k =
      tape.make("d_k of one head", {on.seq, on.key_width()}, on.number());
  const Handle d_v =
      tape.make("d_v of one head", {on.seq, on.v_width}, on.number());
  // A sum in fp32 takes what it adds as fp32.
  if (!sums.empty() && rounded(on)) {
    tape.make(
        on.latent_space ? "d_v of one head, widened"
                        : "d_k_pe of one head, widened",
        {on.seq, on.latent_space ? on.v_width : on.rope},
        on.accumulator());
  }
}

// --- sdpa: ATen's flash attention for the CPU

// Queries and keys that one thread of the op takes at a time (torch 2.13,
// FlashAttentionKernel.cpp).
struct OpBlocks {
  Dim threads, queries, keys;
};

OpBlocks op_blocks(const InnerProblem& on) {
  const int64_t seq = on.seq.size;
  const int64_t queries = seq >= 768 ? 256 : seq >= 192 ? 64 : 32;
  return {
      {"threads", on.options.threads},
      {"query block", std::min(queries, seq)},
      {"key block", std::min(int64_t{512}, seq)}};
}

Dim op_width(const InnerProblem& on) {
  const Dim key = on.key_width();
  return key.size >= on.v_width.size ? key : on.v_width;
}

struct PaddedKeys {
  Handle k, v;
};

PaddedKeys padded_keys(TapeRecorder& tape, const InnerProblem& on) {
  const Dim width = op_width(on);
  PaddedKeys keys;
  if (on.latent_space) { // k is the latent as it lies
    keys.v = tape.make("v padded", {on.batch, on.seq, width}, on.number());
    return keys;
  }
  keys.k = tape.make(
      "k side by side", {on.batch, on.seq, on.heads, width}, on.number());
  if (on.v_width.size < width.size) {
    keys.v =
        tape.make("v padded", {on.batch, on.seq, on.heads, width}, on.number());
  }
  return keys;
}

// Queries lie side by side in head space.
Handle joined_queries(TapeRecorder& tape, const InnerProblem& on) {
  const Dim width = op_width(on);
  if (!on.latent_space && width.size == on.key_width().size) return {};
  return tape.make(
      "q side by side", {on.batch, on.seq, on.heads, width}, on.number());
}

Handle head_panels(
    TapeRecorder& tape, const InnerProblem& on, std::string name) {
  return tape.make(
      std::move(name), {on.batch, on.seq, on.heads, op_width(on)}, on.number());
}

std::vector<Handle> sdpa_forward(TapeRecorder& tape, const InnerProblem& on) {
  const Handle q = joined_queries(tape, on);
  const PaddedKeys keys = padded_keys(tape, on);
  const Handle out = head_panels(tape, on, "out of the op");
  Handle lse = log_sum_exp(tape, on);
  const OpBlocks blocks = op_blocks(on);
  const Handle work = tape.make(
      "op's blocks",
      {blocks.threads,
       blocks.queries,
       {"key block + 2 + " + op_width(on).name,
        blocks.keys.size + 2 + op_width(on).size}},
      on.accumulator());
  if (rounded(on)) {
    tape.make(
        "op's blocks, rounded",
        {blocks.threads, blocks.queries, blocks.keys},
        on.number());
  }
  return {lse};
}

void sdpa_backward(
    TapeRecorder& tape,
    const InnerProblem& on,
    const std::function<void()>& make_gradients) {
  Handle d_q, d_k, d_v;
  {
    const Handle q = joined_queries(tape, on);
    const PaddedKeys keys = padded_keys(tape, on);
    Handle d_out, out;
    if (on.v_width.size < op_width(on).size) {
      d_out = head_panels(tape, on, "d_out padded");
      out = head_panels(tape, on, "out padded");
    }
    d_q = head_panels(tape, on, "d_q of the op");
    d_k = head_panels(tape, on, "d_k of the op");
    d_v = head_panels(tape, on, "d_v of the op");
    const OpBlocks blocks = op_blocks(on);
    const std::vector<Dim> scores_and_gradients{
        {"2", 2}, blocks.threads, blocks.queries, blocks.keys};
    const Handle work =
        tape.make("op's blocks", scores_and_gradients, on.accumulator());
    Handle work_rounded;
    if (rounded(on)) {
      work_rounded =
          tape.make("op's blocks, rounded", scores_and_gradients, on.number());
    }
    tape.make("op's delta", {blocks.queries}, on.accumulator());
  }
  make_gradients();
}

// --- fused and stream: our kernels

Handle scratch(
    TapeRecorder& tape, const InnerProblem& on, int64_t bytes_per_worker) {
  return tape.make(
      "kernel scratch",
      {{"threads", on.options.threads}, {"bytes a worker", bytes_per_worker}},
      1);
}

std::vector<Handle> kernel_forward(TapeRecorder& tape, const InnerProblem& on) {
  Handle lse = log_sum_exp(tape, on);
  scratch(tape, on, on.options.forward_scratch);
  return {lse};
}

template <class MakeSums>
void backward_by_kernels(
    TapeRecorder& tape,
    const InnerProblem& on,
    const std::function<void()>& make_gradients,
    const MakeSums& make_sums) {
  const Handle delta =
      tape.make("delta", {on.seq, on.batch, on.heads}, on.accumulator());
  make_gradients();
  const auto sums = make_sums();
  scratch(tape, on, on.options.backward_scratch);
}

void fused_backward(
    TapeRecorder& tape,
    const InnerProblem& on,
    const std::function<void()>& make_gradients) {
  backward_by_kernels(
      tape, on, make_gradients, [&] { return shared_sums(tape, on); });
}

// Of all heads, [S, b, c + r].
Handle latent_sum(TapeRecorder& tape, const InnerProblem& on) {
  return tape.make(
      "d_latent sum",
      {on.seq, on.batch, sum(on.kv_lora_rank, on.rope)},
      on.accumulator());
}

void stream_backward(
    TapeRecorder& tape,
    const InnerProblem& on,
    const std::function<void()>& make_gradients) {
  backward_by_kernels(tape, on, make_gradients, [&] {
    return rounded(on) ? latent_sum(tape, on) : Handle();
  });
}

// --- stream-sdpa: one head at a time

InnerProblem one_head(const InnerProblem& on) {
  InnerProblem head = on;
  head.heads = {"1", 1};
  return head;
}

Handle expanded_head(TapeRecorder& tape, const InnerProblem& on) {
  return tape.make(
      "kv of one head",
      {on.seq, on.batch, sum(on.width, on.v_width)},
      on.number());
}

std::vector<Handle> stream_sdpa_forward(
    TapeRecorder& tape, const InnerProblem& on) {
  std::vector<Handle> kept;
  for (int64_t head = 0; head < on.heads.size; ++head) {
    const Handle kv = expanded_head(tape, on);
    kept.push_back(sdpa_forward(tape, one_head(on))[0]);
  }
  return kept;
}

void stream_sdpa_backward(
    TapeRecorder& tape,
    const InnerProblem& on,
    const std::function<void()>& make_gradients) {
  make_gradients();
  const Handle sum_of_heads = latent_sum(tape, on);
  const Handle d_kv = tape.make(
      "d_kv of one head",
      {on.seq, on.batch, sum(on.width, on.v_width)},
      on.number());
  const Handle d_k_pe =
      tape.make("d_k_pe of one head", {on.seq, on.batch, on.rope}, on.number());
  {
    const Handle kv = expanded_head(tape, on);
    sdpa_backward(tape, one_head(on), [] {});
  }
  const Handle d_latent = tape.make(
      "d_latent of one head", {on.seq, on.batch, on.kv_lora_rank}, on.number());
  if (rounded(on)) {
    tape.make(
        "d_latent of one head, widened",
        {on.seq, on.batch, on.kv_lora_rank},
        on.accumulator());
  }
}

constexpr std::array<InnerRehearsal, 5> kRehearsals{{
    {"eager", false, eager_forward, eager_backward, false},
    {"sdpa", false, sdpa_forward, sdpa_backward, true},
    {"fused", false, kernel_forward, fused_backward, true},
    {"stream", true, kernel_forward, stream_backward, true},
    {"stream-sdpa", true, stream_sdpa_forward, stream_sdpa_backward, true},
}};

} // namespace

Dim InnerProblem::key_width() const {
  return sum(width, rope);
}

const InnerRehearsal& find_inner_rehearsal(std::string_view name) {
  std::string known;
  for (const InnerRehearsal& inner : kRehearsals) {
    if (inner.name == name) return inner;
    known += (known.empty() ? "" : ", ") + std::string(inner.name);
  }
  throw InvalidArgument(detail::concat(
      "[predict_memory] unknown inner attention '", name, "'. Known: ", known));
}

} // namespace laga
