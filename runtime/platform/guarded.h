// Turns internal exceptions into errors of the public interface.
#pragma once

#include <cxxabi.h>

#include <exception>
#include <new>
#include <stdexcept>

#include <fmt/format.h>

#include "ir/error.h"
#include "runtime/platform/aligned_buffer.h"

namespace srjit {

/// Runs `body`. An ErrorException becomes its Error; exhausted memory and any other exception become one of kMachine.
/// Throws nothing. Every call of Engine and Pending that gives a Result or a Status, and all background work, goes
/// through here, as every call of srjit.h does.
template <class Body>
auto guarded(Body&& body) -> decltype(body()) {
  try {
    try {
      return body();
    } catch (const ErrorException& failure) {
      return failure.error();
    } catch (const OutOfMemory& failure) {
      return Error{Errc::kMachine, fmt::format("out of memory: {} bytes wanted", failure.bytes()), {}};
    } catch (const std::bad_alloc&) {
      throw;
    } catch (const std::length_error&) {
      return Error{Errc::kMachine, "out of memory: more bytes wanted than there are addresses", {}};
    } catch (const std::exception& failure) {
      return Error{Errc::kMachine, failure.what(), {}};
    } catch (const abi::__forced_unwind&) {  // the thread is cancelled
      throw;
    } catch (...) {
      return Error{Errc::kMachine, "an exception of another type", {}};
    }
  } catch (const std::bad_alloc&) {  // there may be no memory for a longer text
    return Error{Errc::kMachine, "out of memory", {}};
  }
}

}  // namespace srjit
