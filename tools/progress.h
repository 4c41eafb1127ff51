// A progress bar on a terminal.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <string>

namespace srjit {

/// Shows on standard error how far some work is, if that is a terminal; else does nothing. Draws at most ten times a
/// second and not within the first half second, and clears its line when it ends. Not thread-safe.
class Progress {
 public:
  /// `total` steps of work called `label`. `quiet` shows nothing.
  Progress(std::string label, std::size_t total, bool quiet);
  ~Progress() { hide(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// `steps` more are done.
  void advance(std::size_t steps = 1);

  /// Clears the line, so that something else can be printed; the next advance() may draw again.
  void hide();

 private:
  std::string label_;
  std::size_t total_, done_ = 0;
  bool enabled_, drawn_ = false;
  std::chrono::steady_clock::time_point next_;
};

/// One line of text on standard error that changes, under the same conditions. Draws at most four times a second, and
/// clears the line when it ends. Not thread-safe.
class StatusLine {
 public:
  explicit StatusLine(bool quiet);
  ~StatusLine() { hide(); }
  StatusLine(const StatusLine&) = delete;
  StatusLine& operator=(const StatusLine&) = delete;

  /// Shows what `text` gives, cut to the width of the terminal; it is called only where there is something to draw.
  void show(const std::function<std::string()>& text);
  void hide();

 private:
  bool enabled_, drawn_ = false;
  std::chrono::steady_clock::time_point next_;
};

/// The bar as text: "label [#####     ]  50% (5/10)", at most `width` wide where the label allows.
std::string progressLine(const std::string& label, std::size_t done, std::size_t total, std::size_t width);

}  // namespace srjit
