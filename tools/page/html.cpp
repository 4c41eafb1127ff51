#include "tools/page/html.h"

namespace srjit {

extern const PageFile kBaseHtml, kBaseCss, kBaseJs;

std::string makePage(std::string_view name, PageFile style, PageFile script, const Json& data) {
  const auto textOf = [](PageFile bytes) { return std::string(bytes.begin(), bytes.end()); };
  std::string json;
  for (const char c : data.dump(-1, ' ', false, Json::error_handler_t::replace)) {
    c == '<' ? json += "\\u003c" : json += c;  // it begins no tag
  }
  std::string page = textOf(kBaseHtml);
  const auto fill = [&](std::string_view mark, std::string_view text) {
    page.replace(page.find(mark), mark.size(), text);
  };
  fill("/* base.css */", textOf(kBaseCss));
  fill("/* page.css */", textOf(style));
  fill("/* name */", name);
  fill("/* base.js */", textOf(kBaseJs));
  fill("/* page.js */", textOf(script));
  fill("/* data */", json);
  return page;
}

}  // namespace srjit
