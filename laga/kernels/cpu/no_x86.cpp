// In place of x86.cpp and of x86's instruction sets on other architectures,
// where the portable kernels are compiled for the oldest processor.
#include "laga/kernels/cpu/cpu.h"
#include "laga/kernels/tables.h"

namespace laga::kernels {

bool cpu_runs_portable() {
  return true;
}

bool cpu_runs_avx512() {
  return false;
}

bool cpu_runs_avx512_bf16() {
  return false;
}

const Kernels<Bf16>* avx512_bf16_inputs() {
  return nullptr;
}

const Kernels<float>* avx512_fp32() {
  return nullptr;
}

const Kernels<Bf16>* avx512_bf16() {
  return nullptr;
}

} // namespace laga::kernels
