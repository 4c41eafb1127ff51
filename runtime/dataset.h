// A data set that an Engine holds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

namespace srjit {

/// Subtree values kept with a data set (EngineOptions::subtree_bytes); of several devices, on all of them.
struct SubtreeStats {
  std::size_t capacity = 0;    ///< maximum number of columns
  std::size_t kept = 0;        ///< columns that hold values now
  std::uint64_t bytes = 0;     ///< device memory of `capacity` columns
  std::uint64_t computed = 0;  ///< columns computed since the upload
  std::uint64_t replaced = 0;  ///< of those, columns whose value replaced another subtree's
  std::uint64_t reads = 0;     ///< columns read, summed over programs
};

/// Adjacent rows of a group that Engine::sample() draws.
inline constexpr std::size_t kRowsPerGroup = 128;

/// A cheap handle to shared, immutable rows (Engine::upload, Engine::adopt). Thread-safe.
class Dataset {
 public:
  std::size_t rows() const noexcept;
  /// Groups of kRowsPerGroup rows; the last one may have fewer.
  std::size_t rowGroups() const noexcept;
  std::size_t columns() const noexcept;
  SubtreeStats subtrees() const;

  struct State;
  explicit Dataset(std::shared_ptr<const State> state) : state_(std::move(state)) {}
  const State& state() const noexcept { return *state_; }
  const std::shared_ptr<const State>& handle() const noexcept { return state_; }

 private:
  std::shared_ptr<const State> state_;
};

}  // namespace srjit
