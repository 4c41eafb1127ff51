#include "tools/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>

#include <fmt/format.h>

#include "tools/streams.h"

namespace srjit {

using namespace std::chrono_literals;

Progress::Progress(std::string label, std::size_t total, bool quiet)
    : label_(std::move(label)),
      total_(total),
      enabled_(!quiet && total > 0 && isatty(STDERR_FILENO) == 1),
      next_(std::chrono::steady_clock::now() + 500ms) {}

void Progress::hide() {
  if (drawn_) tell("\r\x1b[K");
  drawn_ = false;
}

void Progress::advance(std::size_t steps) {
  done_ = std::min(done_ + steps, total_);
  const auto now = std::chrono::steady_clock::now();
  if (!enabled_ || now < next_) return;
  next_ = now + 100ms;
  drawn_ = true;
  winsize size{};
  const bool known = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  // A line as wide as the terminal would wrap on some.
  tell('\r' + progressLine(label_, done_, total_, known ? size.ws_col - 1u : 79u) + "\x1b[K");
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
