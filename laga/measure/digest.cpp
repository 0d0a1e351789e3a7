#define XXH_INLINE_ALL
#include "laga/measure/errors.h"

#include <xxhash.h>

#include <cstdio>
#include <memory>

namespace laga {

std::string digest(const NamedResults& results) {
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(
      XXH3_createState(), &XXH3_freeState);
  XXH3_128bits_reset(state.get());
  for (const auto& [name, tensor] : results) {
    const at::Tensor bytes = tensor.contiguous();
    XXH3_128bits_update(state.get(), bytes.const_data_ptr(), bytes.nbytes());
  }
  const XXH128_hash_t hash = XXH3_128bits_digest(state.get());
  char text[33];
  std::snprintf(
      text,
      sizeof(text),
      "%016llx%016llx",
      static_cast<unsigned long long>(hash.high64),
      static_cast<unsigned long long>(hash.low64));
  return text;
}

} // namespace laga
