// `laga bench`: a file for each thing that is measured, and what they share.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <vector>

namespace laga::cli {

/// Each adds its command to `laga bench`; see command.h for `chosen`.
void add_bench_attention(CLI::App& bench, std::function<int()>& chosen);
void add_bench_comm(CLI::App& bench, std::function<int()>& chosen);
void add_bench_layer(CLI::App& bench, std::function<int()>& chosen);

/// Of an even number of values the mean of the two in the middle; of none, 0.
double median(std::vector<double> values);

} // namespace laga::cli
