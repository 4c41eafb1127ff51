#include "tools/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>

#include <fmt/format.h>

#include "tools/report.h"

namespace srjit {

StatusLine::StatusLine(bool quiet, std::chrono::milliseconds interval)
    : enabled_(!quiet && isatty(STDERR_FILENO) == 1),
      interval_(interval),
      next_(std::chrono::steady_clock::now() + std::chrono::milliseconds(500)) {}

void StatusLine::hide() {
  if (drawn_) tell("\r\x1b[K");
  drawn_ = false;
}

void StatusLine::show(const std::function<std::string(std::size_t width)>& text) {
  const auto now = std::chrono::steady_clock::now();
  if (!enabled_ || now < next_) return;
  next_ = now + interval_;
  drawn_ = true;
  winsize size{};
  const bool known = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  const std::size_t width = known ? size.ws_col - 1u : 79u;  // a line as wide as the terminal would wrap on some
  std::string line = text(width);
  if (line.size() > width) {
    std::size_t end = std::max<std::size_t>(width, 3) - 3;
    while (end > 0 && (static_cast<unsigned char>(line[end]) & 0xc0u) == 0x80u) --end;  // not within a UTF-8 character
    line.resize(end);
    line += "...";
  }
  tell('\r' + line + "\x1b[K");
}

void Progress::advance(std::size_t steps) {
  done_ = std::min(done_ + steps, total_);
  line_.show([&](std::size_t width) { return progressLine(label_, done_, total_, width); });
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
