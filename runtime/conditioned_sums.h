// Sums of scaled losses, computed again where the rounding of the first ones is too large.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "runtime/engine_tasks.h"
#include "runtime/evaluation/conditioning.h"

namespace srjit {

/// Takes the sums of a derivedTask() of a scaled loss, and evaluates those expressions again whose sums are not
/// accurate (betterConditioning()), only these and at most kMostConditionings times. What an expression gives depends
/// on the expression, its parameters and the data. The programs are kept with the task's. Borrows all.
class ConditionedSums {
 public:
  /// The sums of an expression, and all its outputs, of which derivatives by its own parameters come before those by
  /// the two parameters of its conditioning. Called once for each expression, by the engine's threads.
  using Take = std::function<void(std::size_t expression, const LossSums& sums, std::span<const double> outputs)>;

  ConditionedSums(Engine::State& engine, const Task& task, const Take& take);

  /// `sums.failures` must have all failures of the first evaluation; those of later ones are added. Errors: those of
  /// runSums(), and kLimit at the task's deadline.
  Status run(Sums& sums);

 private:
  struct Entry {
    std::uint32_t expression;
    Conditioning now;
    std::uint64_t valid;  ///< rows, as the first sums have them
  };

  /// The entries that `find(i)` gives, by ascending i < count; the engine's threads call it.
  template <class Find>
  std::vector<Entry> found(std::size_t count, const Find& find);
  std::vector<Entry> takeFirst(const Sums& sums);
  Result<std::vector<Entry>> takeAgain(std::vector<Entry> entries, bool is_last, std::vector<Failure>& failures);
  Program programOf(std::span<const Entry> entries);
  std::vector<double> parametersOf(std::span<const Entry> entries) const;

  Engine::State& engine_;
  const Task& task_;
  const ProgramSource& source_;
  const Dataset::State& data_;
  const Take& take_;
};

}  // namespace srjit
