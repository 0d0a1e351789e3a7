#include "laga/measure/verification.h"

#include "laga/attention/dtype.h"
#include "laga/core/check.h"
#include "laga/measure/layer_run.h"
#include "laga/plan/bytes.h"
#include "laga/reference/mla.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>

#include <algorithm>

namespace laga {

namespace {

at::Tensor positions_of(const VerifyCase& a_case) {
  const at::Tensor positions = at::arange(a_case.seq, at::kLong);
  if (a_case.position_shift == 0) return positions;
  return positions.unsqueeze(1) +
         at::arange(a_case.batch, at::kLong) * a_case.position_shift;
}

struct Limits {
  double output;
  double gradient;
};

// What the plain computation in `dtype` may be off, doubled: another order of
// the same roundings, not another algorithm.
Limits limits(
    const MlaConfig& config,
    Dtype dtype,
    const reference::Problem& problem,
    const NamedResults& exact) {
  if (dtype == Dtype::kFp64) return {1e-12, 1e-12};
  const auto errors = relative_errors(config, reference::solve(problem), exact);
  double output = 0;
  for (const NamedError& error : errors) {
    if (error.name == "output") output = error.relative;
  }
  return {2 * output, 2 * worst_gradient(errors).relative};
}

void judge(
    const std::vector<NamedError>& errors,
    const Limits& limits,
    Verdict& verdict) {
  verdict.worst_gradient = worst_gradient(errors);
  for (const NamedError& error : errors) {
    const bool output = error.name == "output";
    if (output) verdict.output_error = error.relative;
    const double limit = output ? limits.output : limits.gradient;
    // Not `>`: an error that is not a number fails too.
    if (!(error.relative <= limit)) {
      verdict.failures.push_back(detail::concat(
          error.name, ": relative error ", error.relative, ", limit ", limit));
    }
  }
}

} // namespace

void verify(
    const VerifyCase& a_case,
    Dtype dtype,
    const std::vector<int>& ranks,
    double deadline_s,
    const std::function<void(const Verdict&)>& report) {
  const MlaConfig& config = a_case.config;
  const LayerInputs inputs =
      make_inputs(config, a_case.seq, a_case.batch, dtype, /*seed=*/0);
  reference::Problem problem{
      config,
      {},
      inputs.hidden,
      inputs.grad_output,
      positions_of(a_case),
      a_case.causal};
  for (const auto& [name, tensor] : named(inputs.weights)) {
    problem.weights[name] = tensor;
  }
  const NamedResults exact =
      reference::solve(reference::converted(problem, at::kDouble));
  const Limits bounds = limits(config, dtype, problem, exact);

  for (const Form& form : kForms) {
    for (const int count : a_case.ranks) {
      if (!ranks.empty() &&
          std::find(ranks.begin(), ranks.end(), count) == ranks.end()) {
        continue;
      }
      LayerTask task{
          config, form, {a_case.seq, a_case.batch, count, dtype}, {}};
      task.options.causal = a_case.causal;
      task.options.positions = problem.positions;
      const LayerRun run = run_on_threads(task, inputs, {deadline_s});
      Verdict verdict{
          a_case.name, dtype, std::string(form.name), count, 0, {}, {}};
      judge(relative_errors(config, run.results, exact), bounds, verdict);
      for (const std::string& line : run.disagreements) {
        verdict.failures.push_back(line);
      }
      for (int rank = 0; rank < count; ++rank) {
        for (const std::string& line : differences(
                 predict_transfers(config, form, task.shape, {rank, {}}),
                 run.transfers[rank])) {
          verdict.failures.push_back(detail::concat("rank ", rank, ": ", line));
        }
      }
      report(verdict);
    }
  }
}

} // namespace laga
