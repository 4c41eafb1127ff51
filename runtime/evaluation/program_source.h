// The expressions of a program, and how graphs are made of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "ir/expression.h"
#include "ir/numeric.h"
#include "ir/population.h"
#include "passes/gradient/derivation.h"
#include "passes/pass.h"
#include "runtime/evaluation/graph_filter.h"
#include "runtime/platform/deadline.h"
#include "runtime/results.h"

namespace srjit {

/// Input of code generation: values alone. Constant once a program has it. Background work may keep it beyond the
/// program's lifetime. Invariant, kept by the functions: `variables` and `tokens` are those of the expressions.
struct ProgramSource {
  Precision precision = Precision::kF32;  ///< the engine's
  Math math = Math::kPrecise;
  std::optional<Pipeline> pipeline = {};  ///< not set: Pipeline::standard(), in one walk
  Population expressions = {};
  std::vector<Failure> invalid = {};  ///< expressions that were not valid; they are the constant NaN here
  std::uint32_t variables = 0;        ///< the largest variableCount()
  std::size_t tokens = 0;             ///< of all expressions
  /// What is computed of each expression instead of its value, which is one output.
  std::optional<Derivation> derivation = {};
  std::vector<std::size_t> output_offsets = {};  ///< of a derivation: outputOffset() of every expression, and the end
  bool group_by_sharing = true;                  ///< CompileOptions::group_by_sharing
  /// Whether these are more expressions of the population of the program before, of which this is a later part.
  bool is_continued = false;

  /// Program::parameterOffset().
  std::size_t parameterOffset(std::size_t e) const noexcept { return expressions.parameterOffset(e); }

  /// The outputs of expression e are those from outputOffset(e) to outputOffset(e + 1); outputOffset(size()) is the
  /// number of all. Graphs have a root for each, in this order.
  std::size_t outputOffset(std::size_t e) const noexcept { return derivation ? output_offsets[e] : e; }
  std::size_t outputs() const noexcept { return outputOffset(expressions.size()); }
  /// Appends the numbers of the outputs of expression e.
  void appendOutputs(std::size_t e, std::vector<std::uint32_t>& numbers) const;
  /// How many times longer code for the outputs of expression e is than that for its value, about.
  std::size_t lengthFactor(std::size_t e) const noexcept {
    return derivation ? 2 + outputOffset(e + 1) - outputOffset(e) : 1;
  }
  /// The mean over all expressions.
  std::size_t lengthFactor() const noexcept {
    return derivation && expressions.size() > 0 ? 2 + outputs() / expressions.size() : 1;
  }

  /// A source of the same expressions for what is derived of them. Those that have more variables than
  /// derivation.columns have outputs that are NaN.
  ProgramSource derive(const Derivation& derivation) const;

  /// The outputs() of derive(derivation), which are counted without making it.
  std::size_t outputsOf(const Derivation& derivation) const noexcept;

  /// The expressions first .. last - 1, and what is derived of them. Works on the calling thread's arena.
  ProgramSource slice(std::size_t first, std::size_t last) const;

  /// A source without expressions, of which graphs are made in the same way.
  ProgramSource emptyLike() const;

  /// Whether set() works on the calling thread's arena, or alone: in the child of a fork() there are no other threads.
  enum class Threads : std::uint8_t { kArena, kOne };
  /// Sets the expressions, where there are none yet. Those of more than `max_nodes` tokens become failures (Limits).
  void set(std::span<const Expression> all, Threads threads, std::size_t max_nodes = 0);
  /// The same of arrays that checkArrays() accepts. Expressions that are not valid become failures, too.
  void set(const PopulationView& all, Threads threads, std::size_t max_nodes = 0);
  /// Sets `count` expressions of another source, where there are none yet: the i-th is its expression `which(i)`. Takes
  /// neither what is derived of them nor which were not valid. Works on the calling thread's arena, whose threads call
  /// `which` in any order.
  void setSelected(const ProgramSource& source, std::size_t count,
                   const std::function<std::size_t(std::size_t i)>& which);
  /// The same of fma(f, p_k, p_(k+1)) for an expression f of k parameters: with two parameters more. Expressions of
  /// more than kMostExtended parameters become failures.
  void setExtended(const ProgramSource& source, std::size_t count,
                   const std::function<std::size_t(std::size_t i)>& which);
  static constexpr std::uint32_t kMostExtended = Expression::kMaxIndex - 1;
  /// Sets `count` constants NaN, for expressions of which none may be read.
  void setNone(std::size_t count);

 private:
  template <class Add>
  void setBlocks(std::size_t count, Threads threads, const Add& add);
  void finish();
  void setDerivation(const Derivation& what);
};

/// What graphs are made of. Both must outlive the work.
struct GraphSource {
  const ProgramSource& program;
  GraphFilter* filter = nullptr;  ///< that graphs pass; null: none
  Deadline deadline = {};         ///< of making the graphs, and code of them
};

}  // namespace srjit
