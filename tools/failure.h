// Errors of tools, with a message that is formatted.
#pragma once

#include <utility>

#include <fmt/format.h>

#include "ir/error.h"

namespace srjit {

/// An error without a place.
template <class... Args>
Error failure(Errc code, fmt::format_string<Args...> text, Args&&... args) {
  return {code, fmt::format(text, std::forward<Args>(args)...), {}};
}

/// Throws an ErrorException of kInvalid.
template <class... Args>
[[noreturn]] void refuse(fmt::format_string<Args...> text, Args&&... args) {
  throwError(failure(Errc::kInvalid, text, std::forward<Args>(args)...));
}

}  // namespace srjit
