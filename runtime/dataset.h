// A data set that an Engine has taken.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

namespace srjit {

/// Values of subtrees that are kept with a data set (EngineOptions::subtree_bytes).
struct SubtreeStats {
  std::size_t capacity = 0;    ///< columns that there is room for
  std::size_t kept = 0;        ///< columns that have values now
  std::uint64_t bytes = 0;     ///< of the columns that there is room for
  std::uint64_t computed = 0;  ///< columns that were computed, since the upload
  std::uint64_t replaced = 0;  ///< of those, columns that were given to another subtree
  std::uint64_t reads = 0;     ///< columns that programs read, summed over programs
};

/// A cheap handle to shared, immutable rows (Engine::upload, Engine::adopt). Thread-safe.
class Dataset {
 public:
  std::size_t rows() const noexcept;
  std::size_t columns() const noexcept;
  SubtreeStats subtrees() const;

  struct State;
  explicit Dataset(std::shared_ptr<const State> state) : state_(std::move(state)) {}
  const State& state() const noexcept { return *state_; }

 private:
  std::shared_ptr<const State> state_;
};

}  // namespace srjit
