#include "laga/plan/plan.h"

#include "laga/core/check.h"
#include "laga/plan/bytes.h"
#include "laga/plan/planned_forms.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

namespace laga {

namespace {

MlaConfig share_of_heads(const PlanQuery& query) {
  const int64_t heads = query.config.num_heads;
  LAGA_CHECK(
      query.tp > 0 && heads % query.tp == 0,
      "tp ",
      query.tp,
      " does not divide the ",
      heads,
      " heads of ",
      query.config.name);
  MlaConfig config = query.config;
  config.num_heads = heads / query.tp;
  return config;
}

std::vector<int> node_of(int ranks, int ranks_per_node) {
  std::vector<int> nodes(static_cast<size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank)
    nodes[static_cast<size_t>(rank)] = rank / ranks_per_node;
  return nodes;
}

class Timer {
 public:
  Timer(const PlanQuery& query, const System& system)
      : system_(system),
        shape_(query.shape),
        ranks_(query.shape.ranks),
        dtype_(query.shape.dtype) {}

  PlanSeconds of(const PlanRow& row) const {
    PlanSeconds seconds;
    for (const WorkPart& part : row.work) {
      (part.kind == WorkKind::kGemm ? seconds.gemms : seconds.attention) +=
          of(part);
    }
    seconds.touching = system_.touch_seconds(touched_bytes(row.tape), ranks_);
    for (const Phase phase : {Phase::kForward, Phase::kBackward})
      communicate(row, phase, seconds);
    return seconds;
  }

 private:
  double of(const WorkPart& part) const {
    if (part.kind == WorkKind::kGemm)
      return system_.gemm_seconds(part.flops, dtype_, ranks_);
    return system_.attention_seconds(
        part.flops,
        part.kind == WorkKind::kAttentionInHeadSpace ? ScoreSpace::kHead
                                                     : ScoreSpace::kLatent,
        part.phase,
        static_cast<double>(shape_.seq),
        dtype_,
        ranks_);
  }

  // Every tensor is written once and read once. Scratch, counted in bytes,
  // stays in the caches.
  static double touched_bytes(const MemoryTape& tape) {
    double bytes = 0;
    for (const TapeTensor& tensor : tape.tensors) {
      if (tensor.number_bytes > 1) bytes += static_cast<double>(tensor.bytes());
    }
    return bytes;
  }

  void communicate(
      const PlanRow& row, Phase phase, PlanSeconds& seconds) const {
    double keys = 0, ring = 0, others = 0;
    for (const Transfer& transfer : row.transfers) {
      if (transfer.phase != phase) continue;
      const double time = system_.seconds(transfer, ranks_);
      if (transfer.op == "send") {
        ring += time;
      } else if (moves_keys(transfer.name) && row.runs) {
        keys += time;
      } else if (moves_keys(transfer.name) && hides_gather(row)) {
        keys += time;
      } else {
        others += time;
      }
    }
    double projection = 0, attention = 0;
    for (const WorkPart& part : row.work) {
      if (part.phase != phase) continue;
      if (part.kind != WorkKind::kGemm) attention += of(part);
      if (part.name.rfind("q", 0) == 0) projection += of(part);
    }
    seconds.communication += keys + ring + others;
    seconds.exposed += others + std::max(0.0, keys - projection) +
                       std::max(0.0, ring - attention);
  }

  static bool moves_keys(const std::string& name) {
    static const std::vector<std::string> kNames{"kv", "k_pe", "latent"};
    const std::string bare = name.rfind("d_", 0) == 0 ? name.substr(2) : name;
    return std::find(kNames.begin(), kNames.end(), bare) != kNames.end();
  }
  // Of planned forms, those that gather the latent as LAGA does.
  static bool hides_gather(const PlanRow& row) {
    return row.form == "query-latent" || row.form.rfind("grid", 0) == 0;
  }

  const System& system_;
  const RunShape& shape_;
  int ranks_;
  Dtype dtype_;
};

class Planning {
 public:
  Planning(const PlanQuery& query, const System& system)
      : query_(query),
        system_(system),
        config_(share_of_heads(query)),
        timer_(query, system) {}

  std::vector<PlanRow> rows() {
    for (const Form& form : kForms) {
      add(form, "fused");
      if (form.key == KeyPath::kLatent && form.space == ScoreSpace::kHead) {
        add(form, "stream");
        add_gathered_again();
      }
    }
    for (PlannedForm& planned : planned_forms(
             config_, query_.shape, system_.ranks_per_node, query_.causal)) {
      PlanRow row;
      row.form = std::move(planned.name);
      row.runs = false;
      row.why_not = std::move(planned.why_not);
      row.transfers = std::move(planned.transfers);
      row.work = std::move(planned.work);
      row.tape = std::move(planned.tape);
      finish(std::move(row));
    }
    return std::move(rows_);
  }

 private:
  void add(const Form& form, const std::string& inner) {
    PlanRow row;
    row.form = form.name;
    row.inner = inner;
    const RunShape& shape = query_.shape;
    if (config_.num_heads % shape.ranks != 0) {
      row.why_not = detail::concat(
          shape.ranks, " ranks do not divide ", config_.num_heads, " heads");
      rows_.push_back(std::move(row));
      return;
    }
    Place place;
    if (shape.ranks > system_.ranks_per_node)
      place.node_of = node_of(shape.ranks, system_.ranks_per_node);
    row.transfers =
        predict_transfers(config_, form, shape, place, {query_.send_delta});
    row.work = predict_work(config_, form, inner, shape, query_.causal);
    MemoryOptions memory;
    memory.send_delta = query_.send_delta;
    row.tape = predict_memory(config_, form, inner, shape, memory);
    finish(std::move(row));
  }

  // `laga stream` that keeps its own shard of the latent only and gathers it
  // once more in the backward.
  void add_gathered_again() {
    PlanRow row = rows_.back();
    if (!row.why_not.empty() || query_.shape.ranks == 1) return;
    row.inner = "stream, gathered again";
    row.runs = false;
    Transfer again = row.transfers.front();
    LAGA_CHECK_EQ(again.name, "latent", "of a form that gathers it");
    again.phase = Phase::kBackward;
    again.name = "latent again";
    row.transfers.push_back(std::move(again));
    keep_shard_only(row.tape);
    finish(std::move(row));
  }

  static void keep_shard_only(MemoryTape& tape) {
    const auto named = [&](const char* name) {
      return std::find_if(
          tape.tensors.begin(), tape.tensors.end(), [&](const TapeTensor& x) {
            return x.name == name;
          });
    };
    TapeTensor shard = *named("latent");
    const auto gathered = named("latent, gathered");
    const int last = gathered->dies;
    gathered->dies = tape.forward_end;
    TapeTensor again = *gathered;
    again.name = "latent, gathered again";
    again.born = named("delta")->born;
    again.dies = shard.dies = last;
    tape.tensors.push_back(std::move(again));
    // Its shard is there from its birth on, also after the first gathering.
    *named("latent") = std::move(shard);
  }

  void finish(PlanRow row) {
    if (row.why_not.empty()) {
      row.weight_bytes = weight_bytes();
      row.seconds = timer_.of(row);
      const auto layers = static_cast<double>(query_.layers);
      const auto saved = static_cast<double>(row.tape.saved_bytes());
      row.memory =
          layers * (saved + 2.0 * static_cast<double>(row.weight_bytes)) +
          static_cast<double>(row.tape.peak_bytes()) - saved +
          query_.other_bytes;
      row.fits = row.memory <= memory_limit();
      row.limit = limit(row);
    }
    rows_.push_back(std::move(row));
  }

  int64_t weight_bytes() const {
    int64_t numbers = 0;
    for (const Parameter& parameter : parameters(config_))
      numbers += parameter.numel();
    return numbers * size_of(query_.shape.dtype);
  }
  double memory_limit() const {
    return query_.memory_limit > 0 ? query_.memory_limit
                                   : system_.memory_gb * 1e9;
  }

  static std::string limit(const PlanRow& row) {
    if (!row.fits) return "memory";
    const PlanSeconds& s = row.seconds;
    const std::vector<std::pair<double, const char*>> parts{
        {s.attention, "attention"},
        {s.gemms, "projections"},
        {s.exposed, "communication"},
        {s.touching, "memory traffic"}};
    return std::max_element(parts.begin(), parts.end())->second;
  }

  const PlanQuery& query_;
  const System& system_;
  MlaConfig config_;
  Timer timer_;
  std::vector<PlanRow> rows_;
};

// Doubles or halves one thing until another row wins; at most `steps` times.
template <class Change>
void search(
    const PlanQuery& query,
    const System& system,
    const std::string& now,
    const std::string& what,
    int steps,
    const Change& change,
    std::vector<Flip>& flips) {
  for (const double direction : {0.5, 2.0}) {
    for (int step = 1; step <= steps; ++step) {
      PlanQuery other = query;
      System changed = system;
      const double factor = std::pow(direction, step);
      const double value = change(factor, other, changed);
      if (value <= 0) break;
      const std::vector<PlanRow> rows = make_plan(other, changed);
      const PlanRow* best = recommended(rows);
      const std::string name = best ? best->name() : "nothing fits";
      if (name == now) continue;
      flips.push_back({what, value, name});
      break;
    }
  }
}

} // namespace

std::vector<PlanRow> make_plan(const PlanQuery& query, const System& system) {
  const RunShape& shape = query.shape;
  LAGA_CHECK_GT(shape.seq, 0, "the sequence's tokens");
  LAGA_CHECK_GT(shape.batch, 0, "sequences");
  LAGA_CHECK_GT(shape.ranks, 0, "ranks");
  LAGA_CHECK_GT(query.layers, 0, "layers");
  LAGA_CHECK(
      query.other_bytes >= 0 && query.memory_limit >= 0,
      "bytes are not negative: other_bytes ",
      query.other_bytes,
      ", memory_limit ",
      query.memory_limit);
  return Planning(query, system).rows();
}

const PlanRow* recommended(const std::vector<PlanRow>& rows) {
  std::vector<const PlanRow*> usable;
  double fastest = std::numeric_limits<double>::infinity();
  for (const PlanRow& row : rows) {
    if (!row.runs || !row.why_not.empty() || !row.fits) continue;
    usable.push_back(&row);
    fastest = std::min(fastest, row.seconds.total());
  }
  const PlanRow* best = nullptr;
  for (const PlanRow* row : usable) {
    if (row->seconds.total() > 1.01 * fastest) continue;
    if (best == nullptr || row->memory < best->memory) best = row;
  }
  return best;
}

std::vector<Flip> find_flips(const PlanQuery& query, const System& system) {
  const std::vector<PlanRow> rows = make_plan(query, system);
  const PlanRow* best = recommended(rows);
  if (best == nullptr) return {};
  const std::string now = best->name();
  std::vector<Flip> flips;
  search(
      query,
      system,
      now,
      "P",
      7,
      [](double factor, PlanQuery& other, System&) {
        const double ranks = other.shape.ranks * factor;
        const auto whole = static_cast<int64_t>(ranks);
        if (ranks < 1 || ranks > 65536 ||
            other.shape.seq % std::max<int64_t>(whole, 1) != 0) {
          return 0.0;
        }
        other.shape.ranks = static_cast<int>(whole);
        return ranks;
      },
      flips);
  search(
      query,
      system,
      now,
      "S",
      10,
      [](double factor, PlanQuery& other, System&) {
        const double seq = static_cast<double>(other.shape.seq) * factor;
        other.shape.seq = static_cast<int64_t>(seq);
        const bool whole = static_cast<double>(other.shape.seq) == seq &&
                           other.shape.seq > 0 &&
                           other.shape.seq % other.shape.ranks == 0;
        return whole && seq < 1e9 ? seq : 0.0;
      },
      flips);
  const auto scale = [](std::map<std::string, Link>& links, double factor) {
    for (auto& [op, link] : links) {
      for (auto& [size, rate] : link.gb_per_s.points)
        rate *= factor;
    }
  };
  const bool nodes = query.shape.ranks > system.ranks_per_node;
  search(
      query,
      system,
      now,
      nodes ? "bandwidth between nodes" : "bandwidth within a node",
      8,
      [&](double factor, PlanQuery&, System& changed) {
        scale(nodes ? changed.between_nodes : changed.within_node, factor);
        return factor;
      },
      flips);
  return flips;
}

} // namespace laga
