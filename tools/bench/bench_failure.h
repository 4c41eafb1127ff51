// How a benchmark ends that cannot go on.
#pragma once

#include <utility>

#include "ir/error.h"

namespace srjit {

struct BenchFailure {
  Error error;
};

/// The value, or a BenchFailure.
template <class T>
T must(Result<T> result) {
  if (!result) throw BenchFailure{std::move(result).error()};
  return std::move(*result);
}

}  // namespace srjit
