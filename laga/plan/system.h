// What a plan is made for: how fast ranks compute and how fast bytes move.
#pragma once

#include "laga/core/dtype.h"
#include "laga/core/form.h"
#include "laga/core/transfer.h"

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace laga {

/// A rate measured at some sizes: straight between them on logarithmic scales,
/// constant beyond.
struct Curve {
  std::vector<std::pair<double, double>> points; // size, rate; by size

  double at(double size) const;
};

/// What one rank's part of a collective takes over one kind of link: latency +
/// peers * per_peer + bytes / rate(bytes).
struct Link {
  double latency_us = 0;
  double per_peer_us = 0;
  Curve gb_per_s; // by the bytes that a rank sends, 1 GB = 1e9 B

  double seconds(double bytes, int peers) const;
};

struct AttentionRates {
  Curve head_forward, head_backward;     // TFLOP/s by the sequence's length,
  Curve latent_forward, latent_backward; // of useful work
};

/// Read from JSON; the fields' names are those of the file.
struct System {
  std::string name;
  std::string description;
  int ranks_per_node = 1;
  double memory_gb = 0; // of a rank
  /// Rates are of all ranks of a node together, which share them (threads of
  /// one machine), instead of each rank's own (GPUs).
  bool ranks_share_rates = false;
  double memory_gb_per_s = 0; // of a rank, or a node where ranks share
  std::map<std::string, Link> within_node;   // by operation; "any" for others
  std::map<std::string, Link> between_nodes; // likewise
  std::map<std::string, Curve> gemm_tflop_per_s; // by dtype; by GFLOP of one
  std::map<std::string, AttentionRates> attention_tflop_per_s; // by dtype
  std::map<std::string, std::string> sources; // of every number, by field

  /// One rank's part of a transfer among `ranks` ranks, node by node.
  double seconds(const Transfer& transfer, int ranks) const;
  double gemm_seconds(double flops, Dtype dtype, int ranks) const;
  double attention_seconds(
      double flops,
      ScoreSpace space,
      Phase phase,
      double seq,
      Dtype dtype,
      int ranks) const;
  /// Writing and reading `bytes` once.
  double touch_seconds(double bytes, int ranks) const;

 private:
  // How many ranks a node's rates are shared by.
  double sharers(int ranks) const;
};

/// A preset's name (configs/systems, or the folder that the environment's
/// LAGA_SYSTEMS names), or a file's path. Throws InvalidArgument naming the
/// field, or listing the presets.
System load_system(std::string_view name_or_path);
System parse_system(std::string_view json, const std::string& name);
std::vector<std::string> system_names();

} // namespace laga
