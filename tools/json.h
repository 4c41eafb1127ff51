// JSON of files, requests and results.
#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "ir/error.h"

namespace srjit {

using Json = nlohmann::ordered_json;

/// How deep lists and objects may be nested: deeper than any of ours, and no depth to recurse into that is a danger.
inline constexpr int kDeepestJson = 32;

/// `text`, which came from elsewhere, as a value. Errors: kSyntax with its place for text that is no JSON, in the words
/// that expressions in JSON have; kInvalid for a number that a double cannot hold, or for more than kDeepestJson
/// levels. Throws std::bad_alloc. Thread-safe.
Result<Json> parseJson(std::string_view text);

/// The text of a value, with indents and a line end. Bytes that are not UTF-8 become U+FFFD.
std::string dump(const Json& json);

}  // namespace srjit
