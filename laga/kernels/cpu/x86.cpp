// Asks the processor, and, for its wide registers, whether the system saves
// them: __builtin_cpu_supports looks at both.
#include "laga/kernels/cpu/cpu.h"

namespace laga::kernels {

// x86-64-v3. The rest of that level (F16C, LZCNT, MOVBE) is in every processor
// that has these four, and clang 14 has no names for it.
bool cpu_runs_portable() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
}

// x86-64-v4.
bool cpu_runs_avx512() {
  return cpu_runs_portable() && __builtin_cpu_supports("avx512f") &&
         __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512cd") &&
         __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vl");
}

bool cpu_runs_avx512_bf16() {
  return cpu_runs_avx512() && __builtin_cpu_supports("avx512bf16");
}

} // namespace laga::kernels
