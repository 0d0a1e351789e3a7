// What every command of the program has in common.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>

namespace laga::cli {

/// 0 fine; 1 a check failed; 2 usage or bad input; 3 a peer or the system
/// failed; 130 interrupted.
enum ExitCode { kOk = 0, kCheckFailed = 1, kBadInput = 2, kSystemFailed = 3 };

/// Adds a subcommand to the program; it returns an ExitCode.
void add_compare(CLI::App& program, std::function<int()>& chosen);
void add_bench(CLI::App& program, std::function<int()>& chosen);
void add_info(CLI::App& program, std::function<int()>& chosen);
void add_plan(CLI::App& program, std::function<int()>& chosen);
void add_verify(CLI::App& program, std::function<int()>& chosen);

/// Runs a command and turns what it throws into one line on stderr and a code.
int guarded(const std::function<int()>& command);

/// Bytes that can be had without swapping; infinite where the system does not
/// say.
double available_memory();

/// Throws InvalidArgument unless about `bytes` of memory are available, saying
/// what needs them and how to need less. Better than the kernel's killer.
void check_memory(double bytes, const std::string& advice);

} // namespace laga::cli
