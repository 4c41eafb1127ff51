// Pages of HTML that are one file and need no network: data as JSON, and a script that draws them.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "tools/json.h"

namespace srjit {

/// A file of a page, in a source that the build makes.
using PageFile = std::span<const unsigned char>;

/// The page of `sr-jit NAME`: base.css, base.js and page.html of this folder, the command's own style and script, and
/// the data. Nothing in the data can end their place in the page; bytes that are not UTF-8 become U+FFFD. Thread-safe.
std::string makePage(std::string_view name, PageFile style, PageFile script, const Json& data);

}  // namespace srjit
