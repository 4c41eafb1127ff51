// Whether machine code per batch takes less time than interpretation, on the host.
#pragma once

#include <cstddef>

namespace srjit {

/// Seconds of one core per node of an expression, measured on an AMD EPYC (Zen 4, 512-bit vectors, 3.65 GHz), f32 fast,
/// 2026-11-21: between the populations "mixed" (120e-6, 0.084e-9 and 0.052e-9) and "arithmetic" (22e-6, 0.045e-9 and
/// 0.0135e-9). Only their ratio matters, which varies less between processors than the seconds do.
inline constexpr double kCompileSecondsPerNode = 40e-6;
inline constexpr double kInterpretSecondsPerNodeRow = 0.07e-9;
inline constexpr double kCompiledSecondsPerNodeRow = 0.03e-9;

/// A function costs compiled code as much time as this number of other nodes saves. The interpreter's handler runs one
/// function over a block of rows, and the processor overlaps more rows of it than of a loop with several functions.
/// Measured in random trees of + - * and one function, 64 at a time, one core of an AMD EPYC (2.6 GHz),
/// precise f32 and f64, 2026-11-27: 2 (sin) to 20 (pow), 8 for exp.
inline constexpr double kNodesLostPerFunction = 8;
/// Operators of more instructions have the program of a function (codeWeight() of TargetKind::kHost).
inline constexpr unsigned kLongestOperation = 14;

/// The expressions of a batch.
struct HostWork {
  std::size_t nodes = 0;
  std::size_t functions = 0;  ///< nodes with longer code than kLongestOperation
  double evaluations = 0;     ///< that are expected
  std::size_t rows = 0;
};

/// Whether compiling takes less time than it saves. Both sides are proportional to the number of nodes and inversely to
/// that of cores, so only the share of functions matters.
constexpr bool hostCompilingPays(const HostWork& work) {
  const double nodes = static_cast<double>(work.nodes);
  const double gaining = nodes - kNodesLostPerFunction * static_cast<double>(work.functions);
  return work.evaluations * static_cast<double>(work.rows) * gaining *
             (kInterpretSecondsPerNodeRow - kCompiledSecondsPerNodeRow) >
         kCompileSecondsPerNode * nodes;
}

}  // namespace srjit
