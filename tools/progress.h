// One line of progress on a terminal.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <string>

namespace srjit {

/// A line of text on standard error that changes, if that is a terminal; else does nothing. Draws at most once in
/// `interval` and not within the first half second, and clears the line when it ends. Not thread-safe.
class StatusLine {
 public:
  /// `quiet` shows nothing.
  explicit StatusLine(bool quiet, std::chrono::milliseconds interval = std::chrono::milliseconds(250));
  ~StatusLine() { hide(); }
  StatusLine(const StatusLine&) = delete;
  StatusLine& operator=(const StatusLine&) = delete;

  /// Shows what `text` makes for this width in bytes, cut to that; it is called only where there is something to draw.
  void show(const std::function<std::string(std::size_t width)>& text);

  /// Clears the line, so that something else can be printed; the next show() may draw again.
  void hide();

 private:
  bool enabled_, drawn_ = false;
  std::chrono::milliseconds interval_;
  std::chrono::steady_clock::time_point next_;
};

/// A bar that shows how far some work is, on such a line.
class Progress {
 public:
  /// `total` steps of work called `label`.
  Progress(std::string label, std::size_t total, bool quiet)
      : label_(std::move(label)), total_(total), line_(quiet || total == 0, std::chrono::milliseconds(100)) {}

  /// `steps` more are done.
  void advance(std::size_t steps = 1);
  void hide() { line_.hide(); }

 private:
  std::string label_;
  std::size_t total_, done_ = 0;
  StatusLine line_;
};

/// The bar as text: "label [#####     ]  50% (5/10)", at most `width` wide where the label allows.
std::string progressLine(const std::string& label, std::size_t done, std::size_t total, std::size_t width);

}  // namespace srjit
