// Differences between two lists of lines.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace srjit {

struct DiffLine {
  char sign;  ///< ' ' a line of both, '-' only of the first, '+' only of the second
  std::string text;

  friend bool operator==(const DiffLine&, const DiffLine&) = default;
};

/// The lines of both lists in order, with a longest common subsequence as lines of both. Where the
/// part between the common beginning and end is long, all of it counts as different.
std::vector<DiffLine> lineDiff(std::span<const std::string> first, std::span<const std::string> second);

/// The lines of a text.
std::vector<std::string> splitLines(std::string_view text);

}  // namespace srjit
