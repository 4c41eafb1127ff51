#include <string_view>

#include "tools/explain/output.h"

namespace srjit {

// The files of tools/explain/page/, in a source that the build makes.
extern const char* const kTextOf_page_html;
extern const char* const kTextOf_page_css;
extern const char* const kTextOf_page_js;

namespace explain {
namespace {

/// Replaces the line `mark` of the page.
void fill(std::string& page, std::string_view mark, std::string_view text) {
  page.replace(page.find(mark), mark.size(), text);
}

/// JSON within an element of HTML: "<" begins no tag there.
std::string inHtml(std::string json) {
  std::string text;
  text.reserve(json.size());
  for (const char c : json) c == '<' ? text += "\\u003c" : text += c;
  return text;
}

}  // namespace

std::string asPage(const Explanation& explanation) {
  std::string page = kTextOf_page_html;
  fill(page, "/* page.css */", kTextOf_page_css);
  fill(page, "/* page.js */", kTextOf_page_js);
  fill(page, "/* explanation */", inHtml(asJson(explanation, false)));
  return page;
}

}  // namespace explain
}  // namespace srjit
