// The rotary part of a config.json. Internal to laga/core.
#pragma once

#include "laga/core/config.h"
#include "laga/core/json_fields.h"

#include <string_view>

namespace laga::detail {

/// Notes why `config` cannot be computed with; its sizes stay right.
inline void refuse(
    MlaConfig& config, std::string_view field, std::string_view reason) {
  config.unsupported.push_back(concat(field, ": ", reason));
}

/// Fills rope, rope_theta and yarn, and refuses by name what is not
/// implemented. `theta_unchecked`: a missing rope_theta is no mistake, because
/// the config lists it as unchecked and is refused for that.
void read_rope(
    const JsonFields& fields, bool theta_unchecked, MlaConfig& config);

} // namespace laga::detail
