#include "tools/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>

#include <fmt/format.h>

#include "tools/streams.h"

namespace srjit {

using namespace std::chrono_literals;

namespace {

bool isShown(bool quiet) { return !quiet && isatty(STDERR_FILENO) == 1; }

/// What a line may take: one as wide as the terminal would wrap on some.
std::size_t lineWidth() {
  winsize size{};
  const bool known = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col - 1u : 79u;
}

void clearLine(bool& drawn) {
  if (drawn) tell("\r\x1b[K");
  drawn = false;
}

}  // namespace

Progress::Progress(std::string label, std::size_t total, bool quiet)
    : label_(std::move(label)),
      total_(total),
      enabled_(total > 0 && isShown(quiet)),
      next_(std::chrono::steady_clock::now() + 500ms) {}

void Progress::hide() { clearLine(drawn_); }

void Progress::advance(std::size_t steps) {
  done_ = std::min(done_ + steps, total_);
  const auto now = std::chrono::steady_clock::now();
  if (!enabled_ || now < next_) return;
  next_ = now + 100ms;
  drawn_ = true;
  tell('\r' + progressLine(label_, done_, total_, lineWidth()) + "\x1b[K");
}

StatusLine::StatusLine(bool quiet) : enabled_(isShown(quiet)), next_(std::chrono::steady_clock::now() + 500ms) {}

void StatusLine::hide() { clearLine(drawn_); }

void StatusLine::show(const std::function<std::string()>& text) {
  const auto now = std::chrono::steady_clock::now();
  if (!enabled_ || now < next_) return;
  next_ = now + 250ms;
  drawn_ = true;
  std::string line = text();
  const std::size_t width = lineWidth();
  if (line.size() > width) {
    std::size_t end = width - 3;
    while (end > 0 && (static_cast<unsigned char>(line[end]) & 0xc0u) == 0x80u) --end;  // not within a UTF-8 character
    line.resize(end);
    line += "...";
  }
  tell('\r' + line + "\x1b[K");
}

std::string progressLine(const std::string& label, std::size_t done, std::size_t total, std::size_t width) {
  const double part = total == 0 ? 1 : static_cast<double>(done) / static_cast<double>(total);
  const std::string tail = fmt::format("{:3.0f}% ({}/{})", 100 * part, done, total);
  const std::size_t taken = label.size() + tail.size() + 4;
  const std::size_t cells = std::clamp<std::size_t>(width > taken ? width - taken : 0, 4, 40);
  const auto full = static_cast<std::size_t>(part * static_cast<double>(cells));
  return fmt::format("{} [{}{}] {}", label, std::string(full, '#'), std::string(cells - full, ' '), tail);
}

}  // namespace srjit
