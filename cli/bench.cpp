#include "cli/bench.h"

#include <algorithm>

#include "cli/command.h"

namespace laga::cli {

void add_bench(CLI::App& program, std::function<int()>& chosen) {
  auto* bench =
      program.add_subcommand("bench", "Measures parts by themselves.");
  bench->require_subcommand(1);
  add_bench_attention(*bench, chosen);
  add_bench_comm(*bench, chosen);
  add_bench_layer(*bench, chosen);
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half]
                                : (values[half - 1] + values[half]) / 2;
}

} // namespace laga::cli
