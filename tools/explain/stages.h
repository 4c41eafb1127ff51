// The parts of an explanation: graphs (expressions, passes, rules, derivatives), code, and numbers about it.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "compiler/sass/instruction.h"
#include "passes/dag.h"
#include "passes/rewrite_log.h"
#include "runtime/engine.h"
#include "tools/explain/explanation.h"

namespace srjit::explain {

using Id = std::string;
using Ids = std::vector<Id>;

/// Gives the nodes of graphs their ids, in the order in which graphs are seen. Not thread-safe.
class NodeNames {
 public:
  /// The ids of the nodes of `dag`, by NodeId.
  Ids of(const Dag& dag);
  /// The operators of `dag` in order: ids, and texts as printDag() prints them.
  std::vector<std::pair<Id, std::string>> linesOf(const Dag& dag);

 private:
  NodeNumbers numbers_;
};

/// The graph that code is made of, and the ids of its nodes.
struct FinalGraph {
  Dag dag;
  Ids ids;  ///< by NodeId
};

/// What the roots of the pass `differentiate` are, in order.
std::vector<std::string> derivativeRootNames(std::span<const Expression> batch);

/// Runs the passes. Sets the members `sources`, `nodes`, `graphs` and, with parameters, `gradient`; else adds a notice.
/// Errors: kInvalid, a text that is not that of its expression.
Result<FinalGraph> addGraphs(const Request& request, Json& to);

/// A sign, ' ' for a line of both, '-' only of the first, '+' only of the second; and the line.
using DiffLine = std::pair<char, std::string>;

/// The lines of both lists in order, with a longest common subsequence as lines of both. Where the
/// part between the common beginning and end is long, all of it counts as different.
std::vector<DiffLine> lineDiff(std::span<const std::string> first, std::span<const std::string> second);

/// The lines of a text.
std::vector<std::string> splitLines(std::string_view text);

/// A line of a stage's text.
struct Line {
  std::string text;
  Ids nodes;
  bool is_instruction = true;
  Json machine = nullptr;  ///< facts of the direct tier's instruction, if it is one
};

/// A stage before it is JSON.
struct Stage {
  const char *name, *short_title, *title, *note;
  const char* comment;  ///< what a comment begins with in this text
  std::vector<Line> lines = {};
  std::vector<std::pair<std::string, double>> counts = {};

  Json json() const;
};

/// LLVM IR and PTX of a GPU's kernel of predictions, of four rows per thread; LLVM IR and assembly of the processor's.
/// Their nodes are known by the places that the code names (compiler/lowering/source_map.h): those of node i are line
/// i + 1. The lines of a function that is called have the nodes of its calls.
Result<Json> llvmIrStage(const Request& request, const FinalGraph& graph);
Result<Json> ptxStage(const Request& request, const FinalGraph& graph);
Result<Json> hostIrStage(const Request& request, const FinalGraph& graph);
Result<Json> assemblyStage(const Request& request, const FinalGraph& graph);

/// Programs of the interpreters of a GPU and of the processor. The nodes of an instruction are the one that it computes
/// and the leaves that it reads. Those of a token are found by running the program over nodes instead of numbers.
Result<Json> bytecodeStage(const Request& request, const FinalGraph& graph);
Result<Json> hostProgramStage(const FinalGraph& graph);

/// Machine code of the direct tier, decoded. Its nodes are those of DirectTrace.
Result<Json> directStage(const Request& request, const FinalGraph& graph);

/// For each instruction, the registers that it reads or writes, or whose values a later one reads: live variables by
/// iteration to a fixed point, backwards along all paths (A. Aho et al., "Compilers", 2nd ed., 9.2.5). Branches go
/// where their offsets say, an indexed branch to any of `targets` (in instructions), so it is no return of a
/// subroutine; a word that is not known has no effect. Uniform registers and predicates do not count.
std::vector<unsigned> liveRegisters(std::span<const std::optional<sass::Instruction>> code,
                                    std::span<const std::size_t> targets);

/// Columns of the request's data, or drawn ones: uniform on [0.5, 2), the same in every run.
struct Sample {
  std::vector<std::vector<double>> columns;
  std::size_t rows;
  std::string description;
};
Sample sampleFor(const Request& request);

/// Sets the error bounds of the nodes of the last graph, over the first 256 rows: how far a node's number may be from
/// that of exact arithmetic, by evaluateBounded() (ir/reference.h), a running error bound (N. Higham, "Accuracy and
/// Stability of Numerical Algorithms", 2nd ed., 2002, 3.3). With value v and bound e in a row, `absolute` is the
/// largest e, and `relative` the largest e / |v|; "inf" where nothing is promised for some row.
void addErrorBounds(const Request& request, const FinalGraph& graph, const Sample& sample, Json& to);

/// Measures the tiers of an engine of this device, which has the precision and math mode of the request; each time is
/// the least of several. A tier that does not work is a notice. Errors: those of Engine::upload().
Status addTimesOf(const Engine& engine, const std::string& device, const Request& request, const Sample& sample,
                  Json& to);

/// Measures the tiers of the processor, and those of the first GPU, if it can be used.
Status addTimes(const Request& request, const Sample& sample, Json& to);

}  // namespace srjit::explain
