// JSON that came from elsewhere: checkpoints, and the requests of `sr-jit serve`. Thread-safe.
#pragma once

#include <string_view>

#include <nlohmann/json.hpp>

#include "ir/error.h"

namespace srjit::search {

/// How deep lists and objects may be nested: deeper than any of ours, and no depth to recurse into that is a danger.
inline constexpr int kDeepestJson = 32;

/// `text` as a value. Errors: kSyntax with its place for text that is no JSON, in the words that expressions in JSON
/// have; kInvalid for a number that a double cannot hold, or for more than kDeepestJson levels. Throws std::bad_alloc.
Result<nlohmann::ordered_json> parseJson(std::string_view text);

}  // namespace srjit::search
