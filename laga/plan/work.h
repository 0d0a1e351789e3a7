// Floating-point operations of one rank, two per multiply-add, by part.
#pragma once

#include "laga/core/run_shape.h"
#include "laga/core/transfer.h"

#include <string>
#include <string_view>
#include <vector>

namespace laga {

enum class WorkKind { kGemm, kAttentionInHeadSpace, kAttentionInLatentSpace };

/// One GEMM, or the attention of all heads of a rank.
struct WorkPart {
  Phase phase;
  std::string name; // "q_a", "q_b", "q", "kv_a", "kv_b", "o", "attention"
  WorkKind kind;
  double flops;
  /// Of them, those that another rank does too, or that are done again in the
  /// backward: what a form pays for sending or keeping less.
  double redundant = 0;
};

/// Forward and backward of one layer. Projections: forward 2 in out a token,
/// backward twice that. kv_b's up-projection takes as much where it is expanded
/// before the move (S/P tokens, n heads), after it (S tokens, n/P heads) or
/// absorbed. Attention a head and visible pair: forward 2 (qk + v), backward
/// 2 (3 qk + 2 v), with c + r and c for qk and v in latent space. An inner
/// attention that streams expands once more in its backward. Softmax, norms and
/// rotations are not counted. Throws InvalidArgument where check_shape does.
std::vector<WorkPart> predict_work(
    const MlaConfig& config,
    const Form& form,
    std::string_view inner,
    const RunShape& shape,
    bool causal = true);

double flops_in(const std::vector<WorkPart>& work, Phase phase);
double redundant_flops(const std::vector<WorkPart>& work);

/// Pairs that queries at `queries` of `keys` positions see, on average over
/// ranks whose shares are balanced.
double visible_pairs(double queries, double keys, bool causal);

/// The projections of `tokens` tokens, and kv_b's of `heads` heads and
/// `expanded` tokens, which `copies` ranks do alike.
std::vector<WorkPart> projection_work(
    const MlaConfig& config,
    double tokens,
    double expanded_tokens,
    double expanded_heads,
    double copies = 1);

/// Of `heads` heads with `pairs` visible pairs each.
std::vector<WorkPart> attention_work(
    const MlaConfig& config, ScoreSpace space, double heads, double pairs);

} // namespace laga
