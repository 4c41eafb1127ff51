// Waiting without the GIL, in a way that Ctrl-C ends.
#pragma once

#include <functional>
#include <optional>
#include <stop_token>
#include <type_traits>
#include <utility>

#include "core/bindings.h"

namespace srjit::python {

/// Calls `body` without the GIL; it must not use Python. `owned` is what it reads and writes of Python's objects.
///
/// Python's signal handlers run only on the main thread, so there `body` runs on another thread while this one waits,
/// and looks for signals every 20 ms. If a handler raises an exception, as that of Ctrl-C does, `stop` is requested,
/// and this throws the exception at once; `body` goes on to its end, and then `owned` is released.
void callWithoutGil(std::function<void()> body, nb::object owned, std::stop_source* stop);

/// The same with what `body` gives.
template <class Body>
auto withoutGil(Body body, nb::object owned, std::stop_source* stop = nullptr) {
  using Value = std::invoke_result_t<Body>;
  // Shared, since `body` may outlive this call.
  const auto value = std::make_shared<std::optional<Value>>();
  callWithoutGil([value, body = std::move(body)] { value->emplace(body()); }, std::move(owned), stop);
  return std::move(**value);
}

/// Waits until `is_ready` gives true, which is called without the GIL, again and again; throws what a handler of a
/// signal raises.
void waitUntil(const std::function<bool()>& is_ready);

/// Waits for calls whose waiting was ended early: before Python finalises, and takes what they use.
void finishCalls();

}  // namespace srjit::python
