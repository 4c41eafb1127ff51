// Explanations as text, JSON and a page.
#pragma once

#include <string>

#include "tools/explain/explanation.h"

namespace srjit::explain {

/// Everything as text. Behind what belongs to nodes stands what they are, as "; %6 = sin x0".
std::string asText(const Explanation& explanation);

/// Everything as one JSON object, whose names are those of the members of Explanation (docs/internals/explain.md lists
/// them). What is infinite is the string "inf". With `indent`, over many lines.
std::string asJson(const Explanation& explanation, bool indent);

/// A page of HTML that needs no network and no other file, with asJson() in it.
std::string asPage(const Explanation& explanation);

}  // namespace srjit::explain
