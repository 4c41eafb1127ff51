// Turns internal exceptions into errors of the public interface.
#pragma once

#include <exception>
#include <new>
#include <utility>

#include "ir/error.h"
#include "runtime/platform/aligned_buffer.h"

namespace srjit {

/// Runs `body`. An ErrorException becomes its Error; exhausted memory and any other exception become one of kMachine.
/// Throws nothing. Every call of Engine and Pending that gives a Result or a Status, and all background work, goes
/// through here.
template <class Body>
auto guarded(Body&& body) -> decltype(body()) {
  try {
    try {
      return withinMemory(std::forward<Body>(body));
    } catch (const ErrorException& failure) {
      return failure.error();
    } catch (const std::bad_alloc&) {
      throw;
    } catch (const std::exception& failure) {
      return Error{Errc::kMachine, failure.what(), {}};
    }
  } catch (const std::bad_alloc&) {  // there is no memory for the text of the error either
    return Error{Errc::kMachine, "out of memory", {}};
  }
}

}  // namespace srjit
