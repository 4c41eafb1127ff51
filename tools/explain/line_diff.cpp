#include "tools/explain/line_diff.h"

#include <algorithm>
#include <cstdint>
#include <string_view>

namespace srjit {
namespace {

constexpr std::size_t kMostCells = std::size_t{1} << 24;

/// Appends the difference of lists that are not long.
void addDifference(std::span<const std::string> a, std::span<const std::string> b, std::vector<DiffLine>& lines) {
  const std::size_t width = b.size() + 1;
  // By ends of both lists: the length of a longest common subsequence from there on.
  std::vector<std::uint32_t> longest((a.size() + 1) * width);
  for (std::size_t i = a.size(); i-- > 0;) {
    for (std::size_t j = b.size(); j-- > 0;) {
      longest[i * width + j] = a[i] == b[j] ? longest[(i + 1) * width + j + 1] + 1
                                            : std::max(longest[(i + 1) * width + j], longest[i * width + j + 1]);
    }
  }
  std::size_t i = 0, j = 0;
  while (i < a.size() || j < b.size()) {
    if (i < a.size() && j < b.size() && a[i] == b[j]) {
      lines.push_back({' ', a[i]});
      ++i, ++j;
    } else if (j == b.size() || (i < a.size() && longest[(i + 1) * width + j] >= longest[i * width + j + 1])) {
      lines.push_back({'-', a[i++]});
    } else {
      lines.push_back({'+', b[j++]});
    }
  }
}

}  // namespace

std::vector<DiffLine> lineDiff(std::span<const std::string> first, std::span<const std::string> second) {
  std::vector<DiffLine> lines;
  std::size_t same = 0;
  while (same < std::min(first.size(), second.size()) && first[same] == second[same]) {
    lines.push_back({' ', first[same++]});
  }
  std::span<const std::string> a = first.subspan(same), b = second.subspan(same);
  std::size_t tail = 0;
  while (tail < std::min(a.size(), b.size()) && a[a.size() - 1 - tail] == b[b.size() - 1 - tail]) ++tail;
  const std::span<const std::string> end = a.last(tail);
  a = a.first(a.size() - tail);
  b = b.first(b.size() - tail);
  if ((a.size() + 1) * (b.size() + 1) <= kMostCells) {
    addDifference(a, b, lines);
  } else {
    for (const std::string& line : a) lines.push_back({'-', line});
    for (const std::string& line : b) lines.push_back({'+', line});
  }
  for (const std::string& line : end) lines.push_back({' ', line});
  return lines;
}

std::vector<std::string> splitLines(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    lines.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

}  // namespace srjit
