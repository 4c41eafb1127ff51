// Ranges of expressions that are compiled together, and the graph of a range, for programs and for the commands that
// show kernels. Compile time grows superlinearly with the length of a kernel. Bounded kernels keep the total linear in
// the number of expressions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "compiler/lowering/code_weights.h"
#include "ir/error.h"
#include "passes/dag.h"
#include "runtime/engine_options.h"
#include "runtime/evaluation/program_state.h"

namespace srjit {

/// Maximum number of expressions per GPU kernel. Expressions of one kernel share common subexpressions and loads of
/// columns.
inline constexpr std::size_t kExpressionsPerKernel = 64;

/// Expressions that become one graph, and so one piece of code.
struct Range {
  std::vector<std::uint32_t> expressions;
  std::size_t length = 0;   ///< estimated: instructions per row of a kernel (instructionsOf()); hostCodeLength()
  bool is_compiled = true;  ///< on a host: whether by LLVM
};

/// Divides the expressions whose numbers are in `order` into kernels of adjacent ones. Those of more than `longest`
/// (deviceCodeLength()) are in none, but in `too_long`, in the given order.
std::vector<Range> rangesForDevice(const ProgramSource& source, std::span<const std::uint32_t> order,
                                   const CodeWeights& weights, std::vector<std::uint32_t>& too_long,
                                   std::size_t longest = kMaxCodeLength);

/// Maximum number of expressions, or their outputs if there is more than one expression, per graph on a CPU.
inline constexpr std::size_t kInterpretedPerRange = 8, kCompiledPerRange = 16;

/// Divides all expressions into ranges of adjacent ones. An expression of more than `longest` (hostCodeLength()) is
/// interpreted in either tier, kInterpret or kCompile.
std::vector<Range> rangesForHost(const ProgramSource& source, Tier tier, std::size_t longest = kMaxCodeLength);

/// The graph of the order's expressions after its passes, without dead nodes, which no root reaches; the roots are
/// their outputs. Passes may come from outside of the library, so their graphs are checked: errors are kInvalid with
/// the name of the pass that threw, or whose graph does not match the expressions. The graph passes the filter, for
/// code of the tier. Throws std::bad_alloc, and an ErrorException (kLimit) if the deadline is over.
Result<Dag> graphOf(const CompileOrder& order);

/// The same, but isolates the expression for which a pass fails. Calls `take` with graphs of adjacent expressions of
/// the order, with the place of the first there and their count; an error has a count of 1.
using TakeDag = std::function<void(std::size_t first, std::size_t count, Result<Dag> dag)>;
void graphsOf(const CompileOrder& order, const TakeDag& take);

/// Divides a population, which checkArrays() accepts, into adjacent expressions of about as many tokens each: at most
/// `count` parts, and at least one. A part has no offset before its own. Borrowed from the population.
std::vector<PopulationView> divide(const PopulationView& population, std::size_t count);

}  // namespace srjit
