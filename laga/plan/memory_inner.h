// The inner attentions' part of the rehearsal.
#pragma once

#include "laga/core/dtype.h"
#include "laga/plan/memory.h"
#include "laga/plan/tape.h"

#include <functional>
#include <string_view>
#include <vector>

namespace laga {

/// What it works on: queries [S, b, h, width + r], keys and values of `heads`
/// heads or of one that all share.
struct InnerProblem {
  Dim seq, batch, heads;
  Dim width;   // of q_nope and k_nope: nope, or c in latent space
  Dim rope;    // r
  Dim v_width; // v, or c in latent space
  Dim kv_lora_rank;
  bool latent_space = false; // keys and values are the latent
  bool k_pe_shared = false;  // by all heads
  bool causal = true;
  Dtype dtype = Dtype::kBf16;
  MemoryOptions options;

  int64_t number() const {
    return size_of(dtype);
  }
  int64_t accumulator() const {
    return dtype == Dtype::kFp64 ? 8 : 4;
  }
  Dim key_width() const;
};

struct InnerRehearsal {
  using Handle = TapeRecorder::Handle;

  std::string_view name;
  bool streams;

  /// Returns what the backward needs besides inputs and `out`.
  std::vector<Handle> (*forward)(TapeRecorder& tape, const InnerProblem& on);

  /// `make_gradients` makes the inputs' gradients.
  void (*backward)(
      TapeRecorder& tape,
      const InnerProblem& on,
      const std::function<void()>& make_gradients);

  bool keeps_out; // for the backward
};

/// Throws InvalidArgument listing the known names.
const InnerRehearsal& find_inner_rehearsal(std::string_view name);

} // namespace laga
