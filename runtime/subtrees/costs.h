// When it pays to keep the values of a subtree in device memory: what computing them costs against reading them.
#pragma once

#include <cstddef>

#include "runtime/code/costs.h"
#include "runtime/engine_options.h"

namespace srjit {

/// What one generation does with a subtree; seconds and values of one row.
struct SubtreeUse {
  double computing = 0;  ///< seconds that it takes to compute it wherever it is used
  double reads = 0;      ///< values that are loaded where it is read instead
  double making = 0;     ///< seconds that computing it once, by the interpreter, takes
};

/// Seconds that loading four bytes takes when all multiprocessors do nothing else: 1.2e12 per second come from an
/// H200's memory, 1.4e12 from its L2 cache (docs/history/measurements.md). A kernel that computes beside it hides a
/// part, so this keeps too little rather than too much.
inline constexpr double kReadSeconds = 1 / 1.2e12;

/// Programs that a block of the interpreter runs on the columns that it has staged, where there are many programs
/// (chooseGeometry): the number that reads a column's value for one load of it.
inline constexpr double kProgramsPerRead = 64;

/// Seconds per row that keeping the values saves over `generations` of this use; they are computed and stored
/// once. Not to be kept unless it is above 0. `value_seconds` is what one value takes to load or store.
constexpr double keepingSaves(const SubtreeUse& use, double value_seconds, double generations) {
  return generations * (use.computing - use.reads * value_seconds) - (use.making + value_seconds);
}

/// Values that are loaded for a subtree that `kernels` use: by programs of the interpreter (each of them a kernel
/// here), whose blocks stage it for all of `programs`, or by each kernel or group of machine code.
constexpr double subtreeReads(Tier tier, double kernels, double programs) {
  return tier == Tier::kInterpret ? programs / kProgramsPerRead : kernels;
}

/// The cost per token and row of a tier.
constexpr double costOf(const DeviceCosts& costs, Tier tier) {
  return tier == Tier::kDirect ? costs.direct : tier == Tier::kCompile ? costs.compiled : costs.interpret;
}

/// Seconds of one core per node of a graph that is rewritten so as to read something: 35e-9 to 40e-9 on a 2-core
/// virtual machine, 2026-11-22.
inline constexpr double kRewriteSeconds = 40e-9;

/// The least part of an evaluation's device time that reading must save: less is within the error of this model.
inline constexpr double kLeastPart = 0.05;

/// Whether to rewrite graphs of `nodes` nodes, whose evaluation takes `seconds`, if that `saves` seconds.
constexpr bool rewritingPays(double saves, double seconds, double nodes, double threads) {
  return saves > kLeastPart * seconds && saves > kRewriteSeconds * nodes / threads;
}

/// Savings below this much device time per evaluation are less than the bookkeeping and one more launch cost.
inline constexpr double kLeastSubtreeSeconds = 100e-6;

}  // namespace srjit
