#include "laga/measure/foreign.h"

#include "laga/attention/rotation.h"
#include "laga/core/check.h"
#include "laga/core/rope.h"
#include "laga/reference/mla.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/imag.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/real.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace laga {

namespace {

// Unit roundoffs: half the distance between 1 and the next number.
constexpr double kRoundoffBf16 = 0x1p-8;
constexpr double kRoundoffFp32 = 0x1p-24;
constexpr double kRoundoffFp64 = 0x1p-53;

// What cos and sin are off, per number [S, b, r / 2], when they are computed
// with `roundoff`, by the usual route. theta^(-2i / r) carries the rounding of
// its exponent, times ln theta; then come the power itself, its inverse, YaRN's
// ramp and blend, and the product with the position: 6 roundings, of at most
// the angle without YaRN. Cosine and amplitude are 2 more.
at::Tensor table_bound(const ForeignCase& a_case, double roundoff) {
  const MlaConfig& config = a_case.config;
  const double r = static_cast<double>(config.qk_rope_head_dim);
  const at::Tensor pairs = at::arange(config.qk_rope_head_dim / 2, at::kDouble);
  const at::Tensor angles =
      a_case.positions.to(at::kDouble).abs().unsqueeze(-1) *
      at::pow(config.rope_theta, pairs * (-2 / r));
  return (angles * (std::log(config.rope_theta) + 6) + 2) * roundoff;
}

// |theirs - ours| / amplitude, [S, b, r / 2]: the larger of both halves, which
// repeat the same pairs.
at::Tensor difference(
    const at::Tensor& theirs, const at::Tensor& ours, double amplitude) {
  const at::Tensor both = theirs.to(at::kDouble).unflatten(-1, {2, -1});
  return (both - ours.unsqueeze(-2)).abs().amax(-2) / amplitude;
}

// Of cos and sin together.
struct TableCheck {
  double difference = 0; // the largest
  int64_t first = -1;    // pair that fp64 roundings do not explain; -1: none
  int64_t last = -1;
};

// [pairs], bool: those of which some position is off by more than `bound`. What
// is not a number is.
at::Tensor pairs_beyond(const at::Tensor& off, const at::Tensor& bound) {
  return (off <= bound).logical_not().flatten(0, -2).any(0);
}

void check_table(
    const ForeignCase& a_case,
    const char* name,
    const at::Tensor& theirs,
    const at::Tensor& ours,
    ForeignLimits& limits,
    TableCheck& check) {
  const at::Tensor off =
      difference(theirs, ours, rope_amplitude(a_case.config));
  const double largest = off.max().item<double>();
  check.difference = std::max(check.difference, largest);
  const at::Tensor beyond =
      pairs_beyond(off, table_bound(a_case, kRoundoffFp64)).nonzero();
  if (beyond.size(0) == 0) return;
  const int64_t first = beyond[0].item<int64_t>();
  check.first = check.first < 0 ? first : std::min(check.first, first);
  check.last = std::max(check.last, beyond[-1].item<int64_t>());
  // A bf16 model gets a table computed in fp32 and rounded once.
  const at::Tensor bound = table_bound(a_case, kRoundoffFp32) +
                           (a_case.dtype == Dtype::kBf16 ? kRoundoffBf16 : 0);
  if (!pairs_beyond(off, bound).any().item<bool>()) return;
  limits.failures.push_back(detail::concat(
      name,
      " of the file is ",
      largest,
      " from ours, more than rounding explains: position_ids, rope_theta, "
      "rope_scaling or rope_interleave differ"));
}

TableCheck check_tables(const ForeignCase& a_case, ForeignLimits& limits) {
  TableCheck check;
  if (a_case.config.rope == RopeLayout::kNone) return check;
  const at::Tensor ours =
      make_rotation(a_case.config, a_case.positions, at::kDouble).squeeze(2);
  check_table(a_case, "cos", a_case.cos, at::real(ours), limits, check);
  check_table(a_case, "sin", a_case.sin, at::imag(ours), limits, check);
  return check;
}

// A few roundings in fp64, in which everybody computes them.
void check_number(
    const char* name,
    double theirs,
    double ours,
    std::vector<std::string>& failures) {
  constexpr double kLimit = 8 * kRoundoffFp64;
  if (std::abs(theirs - ours) <= kLimit * std::abs(ours)) return;
  failures.push_back(
      detail::concat(name, " of the file is ", theirs, ", ours is ", ours));
}

// What a table that is off by e may move results by, beyond the rounding that a
// dtype's own arithmetic has anyway. q_pe and k_pe are both rotated by it, so
// that their part of a score, of size 1, moves by up to 2 e, and a softmax
// weight by twice that: its own score and the others' mean. (Measured: 0.2 e to
// 0.5 e.)
double allowed_for_table(const TableCheck& table, double roundoff) {
  return 4 * std::max(0.0, table.difference - 2 * roundoff);
}

void set_fp64_limits(const TableCheck& table, ForeignLimits& limits) {
  // Some ten thousand roundings: the other side adds up in another order, and
  // gradients are long sums of numbers of both signs.
  constexpr double kExact = 1e-11;
  limits.errors.output = limits.errors.gradient = kExact;
  limits.reason = "fp64";
  if (table.first < 0 || !limits.failures.empty()) return;
  constexpr double kMost = 1e-7;
  limits.errors.output = limits.errors.gradient =
      std::min(kMost, kExact + allowed_for_table(table, kRoundoffFp64));
  limits.reason = detail::concat(
      "fp64, but pairs ",
      table.first,
      " to ",
      table.last,
      " of their cos and sin were computed in fp32");
}

// Neither side is exact: each may be off by twice what the plain computation
// is (another order of the same roundings), so that both together may differ by
// four times that.
void set_rounded_limits(
    const ForeignCase& a_case, const TableCheck& table, ForeignLimits& limits) {
  reference::Problem problem;
  problem.config = a_case.config;
  problem.hidden = a_case.inputs.hidden;
  problem.grad_output = a_case.inputs.grad_output;
  problem.positions = a_case.positions;
  for (const auto& [name, tensor] : named(a_case.inputs.weights)) {
    problem.weights[name] = tensor;
  }
  const NamedResults exact =
      reference::solve(reference::converted(problem, at::kDouble));
  const std::vector<NamedError> errors =
      relative_errors(a_case.config, reference::solve(problem), exact);
  const double allowed = allowed_for_table(
      table, a_case.dtype == Dtype::kBf16 ? kRoundoffBf16 : kRoundoffFp32);
  for (const NamedError& error : errors) {
    if (error.name == "output")
      limits.errors.output = 4 * error.relative + allowed;
  }
  limits.errors.gradient = 4 * worst_gradient(errors).relative + allowed;
  limits.reason = detail::concat(
      "4 x the error of the plain computation in ",
      name_of(a_case.dtype),
      allowed > 0 ? ", and their cos and sin" : "");
}

} // namespace

ForeignLimits foreign_limits(const ForeignCase& a_case) {
  ForeignLimits limits;
  const TableCheck table = check_tables(a_case, limits);
  limits.table_difference = table.difference;
  const double scale = softmax_scale(a_case.config);
  limits.scale_difference = std::abs(a_case.softmax_scale - scale) / scale;
  check_number("scaling", a_case.softmax_scale, scale, limits.failures);
  if (a_case.latent_norm_eps) {
    check_number(
        "eps",
        *a_case.latent_norm_eps,
        a_case.config.latent_norm_eps,
        limits.failures);
  }
  if (a_case.dtype == Dtype::kFp64) {
    set_fp64_limits(table, limits);
  } else {
    set_rounded_limits(a_case, table, limits);
  }
  return limits;
}

void verify_foreign(
    const ForeignCase& a_case,
    const ForeignLimits& limits,
    const RunSelection& selection,
    const Runner& run,
    const std::function<void(const Verdict&)>& report) {
  const auto run_one = [&](const Form& form, std::string inner, int count) {
    LayerTask task{
        a_case.config,
        form,
        {a_case.seq, a_case.batch, count, a_case.dtype},
        {}};
    task.options.inner = std::move(inner);
    task.options.positions = a_case.positions;
    const std::optional<LayerRun> done = run(task, a_case.inputs);
    if (!done) return;
    report(judged(a_case.name, task, *done, a_case.results, limits.errors));
  };
  for (const Form& form : kForms) {
    for (const std::string& inner : selection.inners_of(form)) {
      for (const int64_t ranks :
           ranks_that_work(a_case.config, form, a_case.seq)) {
        const int count = static_cast<int>(ranks);
        if (selection.takes(count)) run_one(form, inner, count);
      }
    }
  }
}

} // namespace laga
