#include "laga/measure/verification.h"

#include "laga/attention/dtype.h"
#include "laga/attention/inner/inner.h"
#include "laga/core/check.h"
#include "laga/measure/layer_run.h"
#include "laga/plan/bytes.h"
#include "laga/reference/mla.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>

#include <algorithm>
#include <utility>

namespace laga {

namespace {

at::Tensor positions_of(const VerifyCase& a_case) {
  const at::Tensor positions = at::arange(a_case.seq, at::kLong);
  if (a_case.position_shift == 0) return positions;
  return positions.unsqueeze(1) +
         at::arange(a_case.batch, at::kLong) * a_case.position_shift;
}

// What the plain computation in `dtype` may be off, doubled: another order of
// the same roundings, not another algorithm.
ErrorLimits limits(
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

template <typename Value>
bool contains(const std::vector<Value>& values, const Value& value) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

} // namespace

bool RunSelection::takes(int rank_count) const {
  return ranks.empty() || contains(ranks, rank_count);
}

std::vector<std::string> RunSelection::inners_of(const Form& form) const {
  std::vector<std::string> chosen;
  for (const std::string& inner : inners_for(form)) {
    if (inners.empty() || contains(inners, inner)) chosen.push_back(inner);
  }
  return chosen;
}

Verdict judged(
    std::string case_name,
    const LayerTask& task,
    const LayerRun& run,
    const NamedResults& exact,
    const ErrorLimits& limits) {
  Verdict verdict{
      std::move(case_name),
      task.shape.dtype,
      std::string(task.form.name),
      task.options.inner,
      task.shape.ranks,
      0,
      {},
      run.disagreements};
  const auto errors = relative_errors(task.config, run.results, exact);
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
  for (size_t i = 0; i < run.transfers.size(); ++i) {
    const int rank = run.first_rank + static_cast<int>(i);
    const auto predicted = predict_transfers(
        task.config,
        task.form,
        task.shape,
        {rank, run.node_of},
        {task.options.send_delta});
    for (const std::string& line : differences(predicted, run.transfers[i])) {
      verdict.failures.push_back(detail::concat("rank ", rank, ": ", line));
    }
  }
  return verdict;
}

void verify(
    const VerifyCase& a_case,
    Dtype dtype,
    const RunSelection& selection,
    const Runner& run,
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
  const ErrorLimits bounds = limits(config, dtype, problem, exact);

  const auto run_one = [&](const Form& form, std::string inner, int count) {
    LayerTask task{config, form, {a_case.seq, a_case.batch, count, dtype}, {}};
    task.options.causal = a_case.causal;
    task.options.inner = std::move(inner);
    task.options.positions = problem.positions;
    const std::optional<LayerRun> done = run(task, inputs);
    if (done) report(judged(a_case.name, task, *done, exact, bounds));
  };
  for (const Form& form : kForms) {
    for (const std::string& inner : selection.inners_of(form)) {
      for (const int count : a_case.ranks) {
        if (selection.takes(count)) run_one(form, inner, count);
      }
    }
  }
}

} // namespace laga
