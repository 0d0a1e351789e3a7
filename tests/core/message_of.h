// The text of the InvalidArgument that a call throws.
#pragma once

#include "laga/core/check.h"

#include <gtest/gtest.h>

#include <string>

namespace laga {

/// Fails the test if nothing is thrown; any other exception type escapes.
template <typename Call>
std::string message_of(const Call& call) {
  try {
    call();
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  ADD_FAILURE() << "expected an InvalidArgument";
  return {};
}

inline void expect_contains(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos)
      << "expected \"" << part << "\" in \"" << text << '"';
}

} // namespace laga
