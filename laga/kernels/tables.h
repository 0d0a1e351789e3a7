// What each folder exports: its rows of the table, null where this build has
// none for the processor's architecture.
#pragma once

#include "laga/kernels/attention.h"

namespace laga::kernels {

const Kernels<Bf16>* ref_bf16();
const Kernels<float>* ref_fp32();
const Kernels<double>* ref_fp64();

const Kernels<Bf16>* portable_bf16();
const Kernels<float>* portable_fp32();

const Kernels<Bf16>* avx512_bf16_inputs(); // widened: AVX-512F has no bf16
const Kernels<float>* avx512_fp32();

const Kernels<Bf16>* avx512_bf16();

} // namespace laga::kernels
