// Which instruction set runs: the table's rows that the processor can run, cut
// at what LAGA_ISA allows.
#include "laga/core/check.h"
#include "laga/kernels/cpu/cpu.h"
#include "laga/kernels/tables.h"

#include <array>
#include <cstdlib>
#include <span>
#include <string>
#include <type_traits>

namespace laga::kernels {

namespace {

bool always() {
  return true;
}

struct Isa {
  std::string_view name;
  bool (*cpu_runs)();
  const Kernels<Bf16>* (*bf16)() = nullptr;
  const Kernels<float>* (*fp32)() = nullptr;
  const Kernels<double>* (*fp64)() = nullptr;
};

// Slowest first. What an instruction set has nothing for falls to the one
// above.
constexpr std::array<Isa, 4> kIsas{{
    {"ref", always, ref_bf16, ref_fp32, ref_fp64},
    {"portable", cpu_runs_portable, portable_bf16, portable_fp32},
    {"avx512", cpu_runs_avx512, avx512_bf16_inputs, avx512_fp32},
    {"avx512_bf16", cpu_runs_avx512_bf16, avx512_bf16},
}};

template <class T>
const Kernels<T>* row_of(const Isa& isa) {
  const Kernels<T>* (*row)();
  if constexpr (std::is_same_v<T, Bf16>) {
    row = isa.bf16;
  } else if constexpr (std::is_same_v<T, float>) {
    row = isa.fp32;
  } else {
    row = isa.fp64;
  }
  return row == nullptr ? nullptr : row();
}

// All that T can use of the first `count` instruction sets.
template <class T>
std::vector<const Kernels<T>*> rows_of_first(size_t count) {
  std::vector<const Kernels<T>*> rows;
  for (const Isa& isa : std::span(kIsas).first(count)) {
    const Kernels<T>* const row = isa.cpu_runs() ? row_of<T>(isa) : nullptr;
    if (row != nullptr) rows.push_back(row);
  }
  return rows;
}

template <class Wanted>
std::string names_of(const Wanted& wanted) {
  std::string names;
  for (const Isa& isa : kIsas) {
    if (!wanted(isa)) continue;
    names += names.empty() ? "" : ", ";
    names += isa.name;
  }
  return names;
}

[[noreturn]] void refuse(
    const char* condition, const char* value, const std::string& choices) {
  detail::throw_invalid(
      "kernels",
      detail::concat("LAGA_ISA ", condition, " (", value, " vs ", choices, ")"),
      "Unset, the fastest that this machine can run is used");
}

// How many of kIsas the environment allows. Read at every call: a test may set
// it. Empty is unset, as in a shell's `LAGA_ISA= laga ...`.
size_t allowed_isas() {
  const char* const value = std::getenv("LAGA_ISA");
  if (value == nullptr || *value == '\0') return kIsas.size();
  for (size_t i = 0; i < kIsas.size(); ++i) {
    if (kIsas[i].name != value) continue;
    if (kIsas[i].cpu_runs()) return i + 1;
    const auto runs = [](const Isa& isa) { return isa.cpu_runs(); };
    refuse("runs on this machine", value, names_of(runs));
  }
  refuse("is known", value, names_of([](const Isa&) { return true; }));
}

} // namespace

template <class T>
const Kernels<T>& kernels() {
  return *rows_of_first<T>(allowed_isas()).back(); // never empty: ref
}

template <class T>
std::vector<const Kernels<T>*> runnable_kernels() {
  return rows_of_first<T>(kIsas.size());
}

template const Kernels<Bf16>& kernels();
template const Kernels<float>& kernels();
template const Kernels<double>& kernels();
template std::vector<const Kernels<Bf16>*> runnable_kernels();
template std::vector<const Kernels<float>*> runnable_kernels();
template std::vector<const Kernels<double>*> runnable_kernels();

} // namespace laga::kernels
