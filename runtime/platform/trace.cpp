#include "runtime/platform/trace.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "runtime/platform/guarded.h"
#include "runtime/platform/process.h"

namespace srjit {

std::atomic<bool> detail::is_tracing = false;

namespace {

constexpr double kMicrosecondsPerSecond = 1e6;  // the unit of Chrome's format
constexpr std::uint32_t kStreamThread = 0;
constexpr std::uint32_t kFirstStreamRow = 1'000'000;  // behind those of threads

/// Bytes that are not UTF-8 become U+FFFD. The destructor of a JSON value that is a string takes no memory.
std::string quotedJson(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string numberOfJson(double number) { return std::isfinite(number) ? fmt::format("{}", number) : "null"; }

/// A file that events are appended to. Each line is one write, so it is there or not.
class TraceFile {
 public:
  static Result<std::shared_ptr<TraceFile>> create(const std::string& path) {
    auto created = std::shared_ptr<TraceFile>(new TraceFile(path));
    created->file_ = Descriptor(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0666));
    if (!created->file_.isOpen()) return failure(path);
    created->write("[\n");
    if (created->failure_) return *created->failure_;
    return created;
  }

  void add(const TraceEvent& event) {
    const bool lasts = event.seconds > 0;
    std::string line = fmt::format(R"({{"name":{},"cat":{},"ph":"{}","ts":{},)", quotedJson(event.what),
                                   quotedJson(nameOf(event.kind)), lasts ? "X" : "i",
                                   numberOfJson(event.begin * kMicrosecondsPerSecond));
    // "t": a mark of the height of its thread.
    line += lasts ? fmt::format(R"("dur":{},)", numberOfJson(event.seconds * kMicrosecondsPerSecond)) : R"("s":"t",)";
    line += fmt::format(R"("pid":{},"tid":{})", getpid(),
                        event.thread == kStreamThread ? streamRow(event.device) : event.thread);
    std::string arguments;
    const auto argument = [&](std::string_view name, std::string_view value) {
      arguments += fmt::format("{}{}:{}", arguments.empty() ? "" : ",", quotedJson(name), value);
    };
    if (!event.device.empty()) argument("device", quotedJson(event.device));
    for (const TraceNumber& number : event.numbers) argument(number.name, numberOfJson(number.value));
    if (!arguments.empty()) line += fmt::format(R"(,"args":{{{}}})", arguments);
    write(line + "},\n");
  }

  Status finish() {
    // Chrome's format does not ask for the bracket at the end, but other readers of JSON do.
    write(R"({"name":"trace","ph":"M","pid":0})"
          "\n]\n");
    const std::scoped_lock lock(mutex_);
    return failure_ ? Status(*failure_) : okStatus();
  }

 private:
  explicit TraceFile(std::string path) : path_(std::move(path)) {}

  static Error failure(const std::string& path) {
    return {Errc::kMachine, fmt::format("trace {}: {}", path, std::generic_category().message(errno)), {}};
  }

  /// The row of a device's stream, which gets a name at its first use.
  std::uint32_t streamRow(std::string_view device) {
    std::unique_lock lock(mutex_);
    const auto [known, is_new] = streams_.try_emplace(std::string(device), kFirstStreamRow + streams_.size());
    const std::uint32_t row = known->second;
    if (!is_new) return row;
    lock.unlock();
    write(fmt::format(R"({{"name":"thread_name","ph":"M","pid":{},"tid":{},"args":{{"name":{}}}}},)", getpid(), row,
                      quotedJson(fmt::format("{} stream", device))) +
          "\n");
    return row;
  }

  /// After a failure nothing more is written: events behind a gap would be out of order.
  void write(std::string_view text) {
    const std::scoped_lock lock(mutex_);
    while (!text.empty() && !failure_) {
      const ssize_t written = ::write(file_.get(), text.data(), text.size());
      if (written > 0) {
        text.remove_prefix(static_cast<std::size_t>(written));
      } else if (errno != EINTR) {
        failure_ = failure(path_);
      }
    }
  }

  const std::string path_;
  Descriptor file_;
  std::mutex mutex_;
  std::map<std::string, std::uint32_t> streams_;
  std::optional<Error> failure_;
};

/// Where events go.
struct TraceSink {
  TraceCallback callback;
  std::shared_ptr<TraceFile> file;
  TraceClock::time_point begin = TraceClock::now();
};

// Held shared while an event is told, so that endTrace() waits for those that are.
std::shared_mutex sink_mutex;
std::unique_ptr<const TraceSink> sink;
// The process that traces; 0: none. Its child does not touch the mutex, which may have been locked at the fork.
std::atomic<pid_t> tracing_process = 0;
std::atomic<TraceClock::duration> last_begin = TraceClock::duration(0);

bool isOfParent() noexcept {
  const pid_t process = tracing_process.load(std::memory_order_relaxed);
  return process != 0 && process != getpid();
}

/// Ends the trace before.
Status replace(std::unique_ptr<const TraceSink> next) {
  if (isOfParent()) return okStatus();
  detail::is_tracing = false;  // so that no more threads come to tell events, which the lock would have to wait for
  {
    const std::unique_lock lock(sink_mutex);
    std::swap(sink, next);
    tracing_process = sink != nullptr ? getpid() : 0;
    if (sink != nullptr) last_begin = sink->begin.time_since_epoch();
    detail::is_tracing = sink != nullptr;
  }
  return next == nullptr || next->file == nullptr ? okStatus() : next->file->finish();
}

/// The path with the number of the process in the place of each %p.
std::string pathOfProcess(std::string path) {
  constexpr std::string_view kProcess = "%p";
  for (std::size_t at = 0; (at = path.find(kProcess, at)) != std::string::npos;) {
    path.replace(at, kProcess.size(), std::to_string(getpid()));
  }
  return path;
}

std::uint32_t threadNumber() noexcept {
  static std::atomic<std::uint32_t> count = 0;
  thread_local const std::uint32_t number = ++count;
  return number;
}

}  // namespace

std::string_view nameOf(TraceKind kind) noexcept {
  switch (kind) {
#define SRJIT_TRACE_KIND(id, name, doc) \
  case TraceKind::id:                   \
    return name;
#include "runtime/platform/trace_kinds.def"
  }
  __builtin_unreachable();
}

void startTrace(TraceCallback callback) {
  (void)replace(std::make_unique<const TraceSink>(TraceSink{.callback = std::move(callback), .file = nullptr}));
}

Status traceToFile(const std::string& path) {
  auto file = TraceFile::create(pathOfProcess(path));
  if (!file) return std::move(file).error();
  const std::shared_ptr<TraceFile> to = std::move(*file);
  (void)replace(std::make_unique<const TraceSink>(
      TraceSink{.callback = [to](const TraceEvent& event) { to->add(event); }, .file = to}));
  return okStatus();
}

Status endTrace() { return replace(nullptr); }

TraceClock::time_point traceBegin() noexcept { return TraceClock::time_point(last_begin.load()); }

Status traceByEnvironment() {
  static std::once_flag once;
  Status started = okStatus();
  std::call_once(once, [&] {
    const char* const path = std::getenv("SRJIT_TRACE");
    if (path == nullptr || *path == '\0') return;
    started = traceToFile(path);
    if (started) std::atexit([] { (void)endTrace(); });
  });
  return started;
}

void trace(const TraceFact& fact) noexcept {
  if (isOfParent()) return;
  const auto tell = [&] {
    const std::shared_lock lock(sink_mutex);
    if (sink == nullptr || fact.begin < sink->begin) return okStatus();
    sink->callback({.kind = fact.kind,
                    .what = fact.what,
                    .device = fact.device,
                    .begin = std::chrono::duration<double>(fact.begin - sink->begin).count(),
                    .seconds = fact.seconds,
                    .thread = fact.on_stream ? kStreamThread : threadNumber(),
                    .numbers = fact.numbers});
    return okStatus();
  };
  static_cast<void>(guarded(tell));
}

void TraceSpan::end() noexcept {
  fact_->seconds = std::chrono::duration<double>(TraceClock::now() - fact_->begin).count();
  fact_->numbers = std::span(numbers_).first(count_);
  trace(*fact_);
}

}  // namespace srjit
