// The forms side by side on one system: bytes, memory, work and time of a
// layer, and which to take.
#pragma once

#include "laga/plan/memory.h"
#include "laga/plan/system.h"
#include "laga/plan/work.h"

#include <string>
#include <vector>

namespace laga {

struct PlanQuery {
  MlaConfig config;
  RunShape shape;
  /// Tensor parallelism: each of `tp` ranks has n / tp heads of every SP rank.
  int tp = 1;
  int64_t layers = 1;
  bool causal = true;
  bool send_delta = false;
  /// Bytes of a rank that are not this attention's: other weights, optimizer.
  double other_bytes = 0;
  double memory_limit = 0; // bytes of a rank; 0: the system's
};

/// Seconds of one layer, forward and backward.
struct PlanSeconds {
  double gemms = 0;
  double attention = 0;
  double touching = 0; // tensors written and read besides
  double communication = 0;
  double exposed = 0; // of it, what nothing hides

  double computing() const {
    return gemms + attention + touching;
  }
  double total() const {
    return computing() + exposed;
  }
};

struct PlanRow {
  std::string form;    // "laga"
  std::string inner;   // "stream"; empty where only planned
  bool runs = true;    // with this library; else planned by its formulas only
  std::string why_not; // it cannot be used; then the rest is empty
  std::vector<Transfer> transfers;
  std::vector<WorkPart> work;
  MemoryTape tape;
  int64_t weight_bytes = 0; // of one layer on one rank
  PlanSeconds seconds;
  double memory = 0; // bytes of a rank: everything, all layers
  bool fits = true;
  std::string limit; // what takes the longest, or "memory"

  std::string name() const {
    return inner.empty() ? form : form + " " + inner;
  }
};

/// Rows: the forms with `fused`, LAGA with `stream`, and planned_forms. Ranks
/// fill the system's nodes one after the other; figures are of the rank that
/// sends most to other nodes. Throws InvalidArgument naming what is wrong with
/// the query.
///
/// Time: every GEMM and the attention at the system's rates, tensors written
/// and read at its memory's rate, and transfers by its links. What hides a
/// transfer: the projection of the queries runs while keys, values or the
/// latent move, in both directions; a ring's step runs beside its share of the
/// attention. Nothing else overlaps.
std::vector<PlanRow> make_plan(const PlanQuery& query, const System& system);

/// Of the rows that this library runs and that fit, the fastest; of those
/// within 1 % of it, which no such prediction tells apart, the one that needs
/// least memory. Null if none fits.
const PlanRow* recommended(const std::vector<PlanRow>& rows);

/// Where another row would be recommended: the nearest such value when one
/// thing alone is doubled or halved.
struct Flip {
  std::string what; // "P", "S", "bandwidth between nodes"
  double value = 0; // P, S, or a factor
  std::string to;   // a row's name
};
std::vector<Flip> find_flips(const PlanQuery& query, const System& system);

} // namespace laga
