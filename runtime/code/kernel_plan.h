// How the expressions of a program are divided into compiled kernels and modules: the same for all kinds of kernels.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "passes/dag.h"
#include "runtime/code/parts.h"
#include "runtime/evaluation/code_groups.h"
#include "runtime/evaluation/program_state.h"

namespace srjit {

/// Groups whose kernels are tried as one module, with their graphs after the passes.
struct PlannedModule {
  std::span<const KernelGroup> groups;
  std::span<const Dag> dags;  ///< empty before the passes ran
};

/// Expressions that share much are in the same group. Immutable once it has graphs.
struct KernelPlan {
  std::vector<KernelGroup> groups;
  std::vector<Dag> dags;                ///< one a group, or none before the passes ran
  std::vector<std::uint32_t> too_long;  ///< expressions that are not tried
  std::size_t kernels_per_module = 1;
  std::vector<Failure> failures;  ///< of passes, in order of expression
  std::size_t nodes = 0;          ///< of all graphs
  double seconds_passes = 0;

  std::size_t modules() const noexcept;
  PlannedModule module(std::size_t number) const;
};

/// The groups of the request's expressions, without graphs; in parallel on the calling thread's arena.
KernelPlan planKernels(const CodeRequest& request);

/// The graph of one group, after the passes. Errors: those of passes.
Result<Dag> graphOf(const KernelGroup& group, const CodeRequest& request);

/// Runs the passes for all groups, in parallel likewise. A group that passes refuse is divided; an expression that they
/// refuse alone is a failure. Stops early, with any part of the groups, once `cancelled`.
void addGraphs(KernelPlan& plan, const CodeRequest& request, const std::atomic<bool>& cancelled);

/// The halves of a group of two expressions or more.
std::array<KernelGroup, 2> halvesOf(const KernelGroup& group);

}  // namespace srjit
