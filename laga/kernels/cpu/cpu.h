// What the processor that this runs on can do.
#pragma once

namespace laga::kernels {

/// All that the portable kernels are compiled for.
bool cpu_runs_portable();
/// All that the folder avx512/ is compiled for.
bool cpu_runs_avx512();
/// The same and products of bf16.
bool cpu_runs_avx512_bf16();

} // namespace laga::kernels
