// `laga plan`: which form to take, from a model's config and a system's rates.
#pragma once

#include "laga/plan/plan.h"

#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace laga::cli {

struct PlanOptions {
  std::string model = "deepseek-v3";
  std::string system = "h100-ib";
  PlanQuery query;
  std::string breakdown; // a row's name; "": none
  std::string sweep;     // "seq=4k..1m,ranks=2..128"; "": none
  std::string json;
};

struct PlanReport {
  const PlanOptions& options;
  const System& system;
  std::vector<PlanRow> rows;
  std::vector<Flip> flips;
};

void print_plan(const PlanReport& report, std::FILE* stream);

/// One point of a sweep or the whole plan, schema 1.
nlohmann::ordered_json plan_json(
    const PlanOptions& options, const std::vector<PlanRow>& rows);

/// The recommended row first, then by time.
std::vector<const PlanRow*> by_time(const std::vector<PlanRow>& rows);

/// The recommended row and why, in a sentence.
std::string recommendation(const std::vector<PlanRow>& rows);

/// A tape at its two moments.
void print_breakdown(const PlanReport& report, std::FILE* stream);

/// Rows for every point, as CSV on stdout, or as JSON where --json is given.
int run_sweep(const PlanOptions& options, const System& system);

} // namespace laga::cli
