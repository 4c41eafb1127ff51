// Whether machine code per batch takes less time than interpretation, on the host.
#pragma once

#include <cstddef>

namespace srjit {

/// Seconds of one core per node of an expression, measured with `sr-jit-bench --benchmark_filter='evaluate|compile'` on
/// an AMD EPYC (Zen 4, 512-bit vectors, 3.65 GHz), f32 fast, 2026-11-21: between the populations "mixed" (120e-6,
/// 0.084e-9 and 0.052e-9) and "arithmetic" (22e-6, 0.045e-9 and 0.0135e-9). Only their ratio matters, which varies less
/// between processors than the seconds do. Where functions dominate, as in precise, compilation saves nothing
/// and takes little time.
inline constexpr double kCompileSecondsPerNode = 40e-6;
inline constexpr double kInterpretSecondsPerNodeRow = 0.07e-9;
inline constexpr double kCompiledSecondsPerNodeRow = 0.03e-9;

/// Whether compiling takes less time than it saves. Both sides are proportional to the number of nodes and inversely to
/// that of cores, so both cancel.
constexpr bool hostCompilingPays(double evaluations, std::size_t rows) {
  return evaluations * static_cast<double>(rows) * (kInterpretSecondsPerNodeRow - kCompiledSecondsPerNodeRow) >
         kCompileSecondsPerNode;
}

}  // namespace srjit
