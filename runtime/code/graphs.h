// The graphs of a program's expressions after the passes: what machine code is made of, for every kind of kernel.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "passes/dag.h"
#include "runtime/code/parts.h"
#include "runtime/evaluation/code_groups.h"

namespace srjit {

/// Some of the graphs of Graphs, with their expressions; valid as long as those.
struct GraphSpan {
  std::span<const KernelGroup> groups;
  std::span<const Dag> dags;  ///< one a group

  std::size_t size() const noexcept { return groups.size(); }
  GraphSpan part(std::size_t first, std::size_t count) const {
    return {groups.subspan(first, count), dags.subspan(first, count)};
  }
};

/// Expressions in groups, with a graph of each group. Immutable once it has graphs.
struct Graphs {
  std::vector<KernelGroup> groups;
  std::vector<Dag> dags;                ///< one a group, or none before the passes ran
  std::vector<std::uint32_t> too_long;  ///< expressions that LLVM is not given
  std::size_t per_module = 1;           ///< of LLVM's modules: groups
  std::vector<Failure> failures;        ///< of passes, in order of expression
  std::size_t nodes = 0;                ///< of all graphs
  double seconds = 0;                   ///< that the passes took

  std::size_t modules() const noexcept;
  /// The graphs that LLVM gets as one module.
  GraphSpan module(std::size_t number) const;
};

// The functions below work in parallel on the calling thread's arena.

/// For direct code: groups of adjacent expressions, in order. An expression that passes refuse is a failure.
Graphs directGraphs(const GraphSource& source, unsigned threads);

/// For LLVM: groups of expressions that share much, without graphs.
Graphs planKernels(const CodeRequest& request);
/// Runs the passes for these groups. A group that passes refuse is divided; an expression that they refuse alone is a
/// failure. Stops early, with any part of the groups, once `cancelled`.
void addGraphs(Graphs& graphs, const CodeRequest& request, const std::atomic<bool>& cancelled);
/// The two halves of a group of two expressions or more, without graphs.
std::vector<KernelGroup> halvesOf(const KernelGroup& group);

}  // namespace srjit
