// In place of laga/kernels/cpu: a processor that has everything.
#include "laga/kernels/cpu/cpu.h"

namespace laga::kernels {

bool cpu_runs_portable() {
  return true;
}

bool cpu_runs_avx512() {
  return true;
}

bool cpu_runs_avx512_bf16() {
  return true;
}

} // namespace laga::kernels
