// Passes: functions from a graph to an equivalent graph. One registry has them all; programs may register more.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/error.h"
#include "ir/numeric.h"
#include "passes/dag.h"

namespace srjit {

class RewriteLog;

/// The input of a pass besides the graph.
struct PassContext {
  Math math = Math::kPrecise;
  RewriteLog* log = nullptr;  ///< if given, gets what the passes of passes.def replace (passes/rewrite_log.h)
};

/// How far a pass keeps values.
enum class Exactness {
  kExact,    ///< every root keeps its bits (any NaN equals any NaN)
  kBounded,  ///< every root stays within the error bound of its math mode (docs/accuracy.md)
};

class NodeNumbers;
class WorkingDag;

/// One pass. `run` must not depend on anything but its arguments, and what it does to one root must not depend on the
/// other roots, so that bits do not depend on the batch.
struct Pass {
  std::string name;
  std::function<Dag(const Dag&, const PassContext&)> run;
  Exactness exactness;
  std::string doc;
  /// The same in place, for passes of passes.def: pipelines call it instead of `run`. Null for registered passes.
  void (*rewrite)(WorkingDag&, const PassContext&) = nullptr;
};

/// Adds a pass, for use by name. Fails with kInvalid if the name is taken, empty, "none" or "standard", or contains ','
/// or white space, or if `run` is empty. Thread-safe.
Status registerPass(Pass pass);

/// All passes: those of passes.def in their order, then registered ones. Thread-safe; a snapshot.
std::vector<Pass> allPasses();

/// A sequence of passes.
class Pipeline {
 public:
  /// The passes of passes.def that `math` allows, in order. Every kernel is made with them.
  static Pipeline standard(Math math);

  /// Names separated by commas, with white space around them if wanted: "simplify, fma,hoist". "standard" stands for
  /// the standard passes and "none" for no pass, anywhere in the list; an empty text is no pass. An unknown or missing
  /// name gives kInvalid with a Span in `names` and the known names.
  static Result<Pipeline> parse(std::string_view names, Math math);

  /// The same with `differentiate` before the first `hoist`, or at the end, unless it is there already.
  Pipeline withDerivatives() const;

  /// Runs the passes in order. `after`, if given, is called with each pass, its result and its time in seconds; results
  /// between passes of passes.def are made only for it, outside that time.
  using Observer = std::function<void(const Pass&, const Dag&, double seconds)>;
  Dag run(Dag dag, const PassContext& context, const Observer& after = {}) const;

  /// Valid as long as the pipeline.
  std::span<const Pass> passes() const& noexcept { return passes_; }
  std::span<const Pass> passes() const&& = delete;

 private:
  std::vector<Pass> passes_;
};

/// The graph as text: one operator a line, `%3 = mul %1, x0`, numbered from 0 in order of id, then `root 0 = %3`.
/// Leaves stand where they are used: a constant as the shortest number that reads back, x<column>,
/// p<index>@<expression>, and
/// #<slot>(<value>) for a literal parameter.
std::string printDag(const Dag& dag);
/// The same with numbers that stay from one graph to the next: an operator that was printed with these `numbers` before
/// keeps its own.
std::string printDag(const Dag& dag, NodeNumbers& numbers);

}  // namespace srjit
