#include "laga/core/dtype.h"

#include "laga/core/check.h"

namespace laga {

Dtype parse_dtype(std::string_view name) {
  for (Dtype dtype : {Dtype::kBf16, Dtype::kFp32, Dtype::kFp64}) {
    if (name == name_of(dtype)) return dtype;
  }
  throw InvalidArgument(detail::concat(
      "[parse_dtype] unknown dtype '", name, "'. Known: bf16, fp32, fp64"));
}

} // namespace laga
