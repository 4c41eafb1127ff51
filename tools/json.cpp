#include "tools/json.h"

#include <algorithm>

#include "ir/text/lexer.h"
#include "ir/text/parsers.h"
#include "tools/report.h"

namespace srjit {

Result<Json> parseJson(std::string_view text) {
  const auto checkDepth = [](int depth, Json::parse_event_t, const Json&) {
    if (depth <= kDeepestJson) return true;
    refuse("lists and objects are nested more than {} deep", kDeepestJson);
  };
  try {
    return Json::parse(text, checkDepth);
  } catch (const ErrorException& problem) {
    return problem.error();
  } catch (const Json::parse_error& problem) {
    const std::size_t last = std::clamp<std::size_t>(problem.byte, 1, std::max<std::size_t>(text.size(), 1)) - 1;
    return text::malformedJson(text, last, text.empty() ? 0 : 1, problem.what());
  } catch (const Json::exception&) {  // the parser's only other complaint
    return failure(Errc::kInvalid, "a number {}", text::kBeyondDouble);
  }
}

std::string dump(const Json& json) { return json.dump(2, ' ', false, Json::error_handler_t::replace) + '\n'; }

}  // namespace srjit
