#include "tools/search/resume/parse_json.h"

#include <algorithm>

#include <fmt/format.h>

#include "ir/text/lexer.h"
#include "ir/text/parsers.h"

namespace srjit::search {

Result<nlohmann::ordered_json> parseJson(std::string_view text) {
  const auto checkDepth = [](int depth, nlohmann::ordered_json::parse_event_t, const nlohmann::ordered_json&) {
    if (depth <= kDeepestJson) return true;
    throw ErrorException(
        {Errc::kInvalid, fmt::format("lists and objects are nested more than {} deep", kDeepestJson), {}});
  };
  try {
    return nlohmann::ordered_json::parse(text, checkDepth);
  } catch (const ErrorException& problem) {
    return problem.error();
  } catch (const nlohmann::ordered_json::parse_error& problem) {
    const std::size_t last = std::clamp<std::size_t>(problem.byte, 1, std::max<std::size_t>(text.size(), 1)) - 1;
    return text::malformedJson(text, last, text.empty() ? 0 : 1, problem.what());
  } catch (const nlohmann::ordered_json::exception&) {  // the parser's only other complaint
    return Error{Errc::kInvalid, fmt::format("a number {}", text::kBeyondDouble), {}};
  }
}

}  // namespace srjit::search
