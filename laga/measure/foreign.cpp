#include "laga/measure/foreign.h"

#include "laga/attention/rotation.h"
#include "laga/core/check.h"
#include "laga/core/rope.h"
#include "laga/reference/mla.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/imag.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/real.h>

#include <algorithm>
#include <cmath>

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

bool within(const at::Tensor& difference, const at::Tensor& bound) {
  return (difference <= bound).all().item<bool>();
}

struct TableCheck {
  double difference = 0;
  bool fp32_at_source = false;
};

// Of cos and sin alike.
TableCheck check_tables(
    const ForeignCase& a_case, std::vector<std::string>& failures) {
  TableCheck check;
  if (a_case.config.rope == RopeLayout::kNone) return check;
  const at::Tensor ours =
      make_rotation(a_case.config, a_case.positions, at::kDouble).squeeze(2);
  const at::Tensor exact = table_bound(a_case, kRoundoffFp64);
  // A bf16 model gets its table computed in fp32, then rounded once.
  const at::Tensor rounded = table_bound(a_case, kRoundoffFp32) +
                             (a_case.dtype == Dtype::kBf16 ? kRoundoffBf16 : 0);
  const auto check_one = [&](const char* name,
                             const at::Tensor& theirs,
                             const at::Tensor& mine) {
    const at::Tensor off =
        difference(theirs, mine, rope_amplitude(a_case.config));
    const double largest = off.max().item<double>();
    check.difference = std::max(check.difference, largest);
    if (within(off, exact)) return;
    check.fp32_at_source = true;
    // Not `>`: what is not a number fails too.
    if (within(off, rounded)) return;
    failures.push_back(detail::concat(
        name,
        " of the file is ",
        largest,
        " from ours, more than rounding explains: position_ids, rope_theta, "
        "rope_scaling or rope_interleave differ"));
  };
  check_one("cos", a_case.cos, at::real(ours));
  check_one("sin", a_case.sin, at::imag(ours));
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

void set_fp64_limits(const TableCheck& table, ForeignLimits& limits) {
  // Some ten thousand roundings: the other side adds up in another order, and
  // gradients are long sums of numbers of both signs.
  constexpr double kExact = 1e-11;
  limits.output = limits.gradient = kExact;
  limits.reason = "fp64";
  if (!table.fp32_at_source || !limits.failures.empty()) return;
  // Rotating q_pe and k_pe by a table that is off by e moves a score by up to
  // 2 e |q_pe| |k_pe| scale; those products are below 10 for numbers of size 1,
  // and the softmax doubles what its scores are off.
  constexpr double kScores = 40;
  constexpr double kMost = 1e-7;
  limits.output = limits.gradient =
      std::min(kMost, kExact + kScores * table.difference);
  limits.reason = "their cos and sin were computed in fp32";
}

// Neither side is exact: each may be off by twice what the plain computation
// is (another order of the same roundings), so that both together may differ by
// four times that.
void set_rounded_limits(const ForeignCase& a_case, ForeignLimits& limits) {
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
  for (const NamedError& error : errors) {
    if (error.name == "output") limits.output = 4 * error.relative;
  }
  limits.gradient = 4 * worst_gradient(errors).relative;
  limits.reason = detail::concat(
      "4 x the error of the plain computation in ", name_of(a_case.dtype));
}

void judge(
    const std::vector<NamedError>& errors,
    const ForeignLimits& limits,
    Verdict& verdict) {
  verdict.worst_gradient = worst_gradient(errors);
  for (const NamedError& error : errors) {
    const bool output = error.name == "output";
    if (output) verdict.output_error = error.relative;
    const double limit = output ? limits.output : limits.gradient;
    // Not `>`: an error that is not a number fails too.
    if (error.relative <= limit) continue;
    verdict.failures.push_back(detail::concat(
        error.name, ": relative error ", error.relative, ", limit ", limit));
  }
}

Verdict run_form(
    const ForeignCase& a_case,
    const ForeignLimits& limits,
    const Form& form,
    int ranks,
    double deadline_s) {
  LayerTask task{
      a_case.config, form, {a_case.seq, a_case.batch, ranks, a_case.dtype}, {}};
  task.options.positions = a_case.positions;
  const LayerRun run = run_on_threads(task, a_case.inputs, {deadline_s});
  Verdict verdict{
      a_case.name, a_case.dtype, std::string(form.name), ranks, 0, {}, {}};
  judge(
      relative_errors(a_case.config, run.results, a_case.results),
      limits,
      verdict);
  for (const std::string& line : run.disagreements) {
    verdict.failures.push_back(line);
  }
  return verdict;
}

} // namespace

ForeignLimits foreign_limits(const ForeignCase& a_case) {
  ForeignLimits limits;
  const TableCheck table = check_tables(a_case, limits.failures);
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
    set_rounded_limits(a_case, limits);
  }
  return limits;
}

void verify_foreign(
    const ForeignCase& a_case,
    const ForeignLimits& limits,
    const std::vector<int>& ranks,
    double deadline_s,
    const std::function<void(const Verdict&)>& report) {
  for (const Form& form : kForms) {
    for (const int64_t count :
         ranks_that_work(a_case.config, form, a_case.seq)) {
      const bool asked_for =
          ranks.empty() ||
          std::find(ranks.begin(), ranks.end(), count) != ranks.end();
      if (!asked_for) continue;
      report(
          run_form(a_case, limits, form, static_cast<int>(count), deadline_s));
    }
  }
}

} // namespace laga
