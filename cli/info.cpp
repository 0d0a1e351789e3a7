#include "laga/attention/inner/inner.h"
#include "laga/comm/mpi/mpi.h"
#include "laga/core/config.h"
#include "laga/core/form.h"
#include "laga/kernels/attention.h"

#include <ATen/Parallel.h>
#include <torch/headeronly/version.h>

#include <fmt/format.h>

#include <fstream>
#include <thread>

#include "cli/command.h"
#include "cli/json_output.h"

namespace laga::cli {

namespace {

using Json = nlohmann::ordered_json;

// The processor's name as Linux knows it.
std::string processor() {
  std::ifstream info("/proc/cpuinfo");
  std::string line;
  while (std::getline(info, line)) {
    if (line.rfind("model name", 0) == 0) {
      return line.substr(line.find(':') + 2);
    }
  }
  return "unknown";
}

// What the processor offers beyond its base, as far as attention cares.
std::vector<std::string> instruction_sets() {
  std::vector<std::string> sets;
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) sets.emplace_back("avx2");
  if (__builtin_cpu_supports("avx512f")) sets.emplace_back("avx512f");
  if (__builtin_cpu_supports("avx512bf16")) sets.emplace_back("avx512bf16");
#endif
  return sets;
}

Json facts() {
  Json forms = Json::array();
  for (const Form& form : kForms) {
    forms.push_back(form.name);
  }
  Json comm = Json::array({"threads", "ghost"});
  if (built_with_mpi()) comm.push_back("mpi");
  return {
      {"schema", 1},
      {"version", LAGA_VERSION},
      {"build", LAGA_BUILD_TYPE},
      {"compiler", "g++ " __VERSION__},
      {"torch", TORCH_VERSION},
      {"processor", processor()},
      {"cores", std::thread::hardware_concurrency()},
      {"torch_threads", at::get_num_threads()},
      {"instruction_sets", instruction_sets()},
      {"kernels",
       {fmt::format("bf16: {}", kernels::kernels<Bf16>().isa),
        fmt::format("fp32: {}", kernels::kernels<float>().isa),
        fmt::format("fp64: {}", kernels::kernels<double>().isa)}},
      {"comm", std::move(comm)},
      {"forms", std::move(forms)},
      {"inner", inner_names()},
      {"models", preset_names()}};
}

std::string text_of(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_array()) return value.dump();
  std::string text;
  for (const Json& item : value) {
    text += (text.empty() ? "" : ", ") + text_of(item);
  }
  return text.empty() ? "none" : text;
}

int info(const std::string& json_path) {
  JsonOutput json(json_path);
  const Json document = facts();
  for (const auto& [name, value] : document.items()) {
    if (name == "schema") continue;
    fmt::print(json.table_stream(), "{:<17} {}\n", name, text_of(value));
  }
  json.write(document);
  return kOk;
}

} // namespace

void add_info(CLI::App& program, std::function<int()>& chosen) {
  auto* command = program.add_subcommand(
      "info", "What this build has and what machine it is on.");
  auto path = std::make_shared<std::string>();
  command->add_option(
      "--json",
      *path,
      "Facts into FILE, or - for stdout (the list then goes to stderr)");
  command->footer("Example: laga info");
  command->callback(
      [path, &chosen] { chosen = [path] { return info(*path); }; });
}

} // namespace laga::cli
