// Tensors as the bytes that communicators move.
#pragma once

#include "laga/comm/communicator.h"

#include <ATen/core/Tensor.h>

namespace laga {

/// What arrives for a sum waits in a buffer of at most this size; larger sums
/// go in chunks, with the same bits. Bounds the memory a sum needs.
inline constexpr int64_t kReduceScratchBytes = int64_t{32} << 20;

inline ConstBytes bytes_of(const at::Tensor& x) {
  return {static_cast<const std::byte*>(x.const_data_ptr()), x.nbytes()};
}

inline Bytes mutable_bytes_of(const at::Tensor& x) {
  return {static_cast<std::byte*>(x.mutable_data_ptr()), x.nbytes()};
}

} // namespace laga
