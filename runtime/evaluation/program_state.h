// The expressions of a program, orders to compile them, and the state of a Program.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "ir/expression.h"
#include "ir/numeric.h"
#include "ir/population.h"
#include "passes/dag.h"
#include "passes/gradient/derivation.h"
#include "passes/pass.h"
#include "runtime/engine_options.h"
#include "runtime/platform/deadline.h"
#include "runtime/program.h"
#include "runtime/results.h"

namespace srjit {

/// Input of code generation: only values. Constant once a program has it. Background work may keep it beyond the
/// program's lifetime. Invariant, kept by the functions: `variables` and `tokens` are those of the expressions.
struct ProgramSource {
  Precision precision = Precision::kF32;  ///< the engine's
  Math math = Math::kPrecise;
  std::optional<Pipeline> pipeline = {};  ///< instead of `simplify`
  bool simplify = true;                   ///< Pipeline::standard(), in one walk; else as written (passes/tree.h)
  Population expressions = {};
  std::vector<Failure> invalid = {};  ///< expressions that were not valid; they are the constant NaN here
  std::uint32_t variables = 0;        ///< the largest variableCount()
  std::size_t tokens = 0;             ///< of all expressions
  /// Computed of each expression instead of its value, which is one output.
  std::optional<Derivation> derivation = {};
  std::vector<std::size_t> output_offsets = {};  ///< of a derivation: outputOffset() of every expression, and the end
  bool group_by_sharing = true;                  ///< CompileOptions::group_by_sharing
  /// Whether these are more expressions of the population of the program before: a later part of it.
  bool is_continued = false;

  /// Whether interpreters take expressions as they are written, without graphs. Derivations and passes need graphs.
  bool isOfTrees() const noexcept { return !simplify && !derivation && !pipeline; }
  /// Program::parameterOffset().
  std::size_t parameterOffset(std::size_t e) const noexcept { return expressions.parameterOffset(e); }

  /// The outputs of expression e are those from outputOffset(e) to outputOffset(e + 1); outputOffset(size()) is the
  /// number of all. Graphs have a root for each, in this order.
  std::size_t outputOffset(std::size_t e) const noexcept { return derivation ? output_offsets[e] : e; }
  std::size_t outputs() const noexcept { return outputOffset(expressions.size()); }
  /// The numbers of all expressions.
  std::vector<std::uint32_t> all() const;
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

  /// A source of the same expressions for a derivation. Those that have more variables than
  /// derivation.columns have outputs that are NaN.
  ProgramSource derive(const Derivation& derivation) const;

  /// The outputs() of derive(derivation), which are counted without making it.
  std::size_t outputsOf(const Derivation& derivation) const noexcept;

  /// The expressions first .. last - 1, with their derivation. Works on the calling thread's arena.
  ProgramSource slice(std::size_t first, std::size_t last) const;

  /// A source without expressions, whose graphs are made in the same way.
  ProgramSource emptyLike() const;

  /// Sets the expressions, where there are none yet. Those of more than `max_nodes` tokens become failures (Limits).
  /// Works on the calling thread's arena if `in_arena`: the child of a fork() has no other threads.
  void set(std::span<const Expression> all, std::size_t max_nodes = 0, bool in_arena = true);
  /// The same of arrays that checkArrays() accepts. Expressions that are not valid become failures, too.
  void set(const PopulationView& all, std::size_t max_nodes = 0, bool in_arena = true);
  /// Sets `count` expressions of another source, where there are none yet: the i-th is its expression `which(i)`. Takes
  /// neither their derivation nor which were not valid. Works on the calling thread's arena, whose threads call
  /// `which` in any order.
  void setSelected(const ProgramSource& source, std::size_t count,
                   const std::function<std::size_t(std::size_t i)>& which);
  /// The same with tail(k), codes with two parameters more, behind an expression of k parameters. Expressions of so
  /// many parameters that there are no such indices become failures; the message ends with `why`.
  void setExtended(const ProgramSource& source, std::size_t count,
                   const std::function<std::size_t(std::size_t i)>& which,
                   const std::function<std::vector<std::int32_t>(std::uint32_t k)>& tail, std::string_view why);
  /// Sets `count` expressions, where there are none yet: add(block, e) adds one to the block, and gives an error for
  /// one that is a failure. Works on the calling thread's arena.
  void setEach(std::size_t count, const std::function<Status(Population::Block& block, std::size_t e)>& add);
  /// Sets `count` constants NaN, for expressions that may not be read.
  void setNone(std::size_t count);

 private:
  template <class Add>
  void setBlocks(std::size_t count, bool in_arena, const Add& add);
  void setDerivation(const Derivation& what);
};

/// Rewrites the graphs of a program before code is made of them: to read values that are kept with its data
/// (runtime/subtrees). Belongs to one program. pass() is thread-safe; close() is called once, after the first graphs
/// and before the program is used.
class GraphFilter {
 public:
  virtual ~GraphFilter() = default;

  /// The graph to make code for `tier` of, instead of `dag`: with the same roots, and variables that are columns of the
  /// program's data. `tokens` is the number of tokens of its expressions as given.
  virtual Dag pass(Dag dag, Tier tier, std::size_t tokens) = 0;
  /// Ends the choice of columns that graphs read, and adds it to the facts of the program. Later graphs read no others.
  virtual void close(ProgramInfo& info) = 0;
};

/// What to make graphs or code of, for which tier, and until when. What it refers to must outlive the work.
struct CompileOrder {
  const ProgramSource& source;
  std::span<const std::uint32_t> range = {};  ///< numbers of expressions; ascending, but where one graph is made of all
  Tier tier = Tier::kAuto;
  Deadline deadline = {};
  GraphFilter* filter = nullptr;  ///< that graphs pass; null: none
  unsigned threads = 1;           ///< that make code of it

  /// The same for other expressions.
  CompileOrder of(std::span<const std::uint32_t> expressions) const { return of(expressions, tier); }
  CompileOrder of(std::span<const std::uint32_t> expressions, Tier for_tier) const {
    return {source, expressions, for_tier, deadline, filter, threads};
  }
};

/// The code of a program for one kind of machine. The executor that made the code knows its class. Thread-safe.
class ProgramCode {
 public:
  virtual ~ProgramCode() = default;
  /// Program::status().
  virtual ProgramStatus status() const = 0;
};

/// These expressions, each with a factor and an offset as two more parameters (ConditionedSums).
struct Conditioned {
  std::vector<std::uint32_t> expressions;
  friend bool operator==(const Conditioned&, const Conditioned&) = default;
};

/// Why a program is made of another one: for the code of a deferred one; for a derivation of its expressions; for some
/// of its expressions; for all of them, this number of times behind one another.
using Purpose = std::variant<std::monostate, Derivation, std::vector<std::uint32_t>, Conditioned, std::size_t>;

/// Programs that are made of a program, by purpose: each at its first use. Keeps the code of a deferred program and the
/// most recently used others, and none whose making failed for want of a machine. Thread-safe; a call may wait while
/// another makes its program, until its deadline (lockUntil()).
class ProgramsMade {
 public:
  Program get(const Purpose& purpose, const Deadline& deadline, const std::function<Program()>& make);
  /// What get() keeps for this purpose; nothing while another call makes it.
  std::optional<Program> find(const Purpose& purpose) const;

 private:
  struct Slot;
  std::shared_ptr<Slot> slotOf(const Purpose& purpose);

  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<Slot>> slots_;  ///< the least recently used first
};

struct Program::State {
  std::shared_ptr<const ProgramSource> source;
  std::string device;                        ///< device of the engine that made it
  std::optional<std::uint64_t> data_serial;  ///< serial of the one data set it may be evaluated on; not set: any
  ProgramInfo info{};
  std::vector<Failure> failures;                ///< in order of expression
  bool made = true;                             ///< false: no code exists, and all expressions are failures
  std::optional<CompileOptions> deferred = {};  ///< how code is made at the first evaluation; not set: it exists
  std::shared_ptr<ProgramCode> code;            ///< null if there is none
  mutable ProgramsMade variants;
};

}  // namespace srjit
