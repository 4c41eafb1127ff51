// The exception of a benchmark that cannot continue.
#pragma once

#include <exception>
#include <string>
#include <utility>

#include "ir/error.h"
#include "runtime/cuda/context.h"

namespace srjit {

struct BenchFailure {
  Error error;
};

[[noreturn]] inline void failBench(Errc code, std::string message) {
  throw BenchFailure{{code, std::move(message), {}}};
}

/// The value; throws BenchFailure for an error.
template <class T>
T must(Result<T> result) {
  if (!result) throw BenchFailure{std::move(result).error()};
  return std::move(*result);
}

/// Converts exceptions of `body` to an error.
template <class Body>
Status caught(const Body& body) {
  try {
    body();
  } catch (const BenchFailure& failure) {
    return failure.error;
  } catch (const CudaFailure& failure) {
    return failure.error();
  } catch (const std::exception& failure) {
    return Error{Errc::kMachine, failure.what(), {}};
  }
  return okStatus();
}

}  // namespace srjit
