// JSON that is written and read without values of the JSON library: their destructors take memory, and end the process
// where there is none.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace srjit {

/// A string of JSON, with its quotes; bytes that are not UTF-8 become U+FFFD. Throws std::bad_alloc.
std::string quotedJson(std::string_view text);
/// A number of JSON that reads back with the same bits; "null" for NaN and infinities.
std::string numberOfJson(double number);

/// A piece of a JSON text, in order.
struct JsonEvent {
  enum class Kind { kBeginArray, kBeginObject, kEnd, kKey, kText, kWhole, kNumber, kOther };
  Kind kind;
  std::string text = {};    ///< of kKey, kText
  std::uint64_t whole = 0;  ///< of kWhole, a number that is not negative and has neither point nor exponent
  double number = 0;        ///< of kWhole and kNumber
};
/// nullopt if the text is malformed. Throws std::bad_alloc.
std::optional<std::vector<JsonEvent>> readJson(std::string_view text);

}  // namespace srjit
