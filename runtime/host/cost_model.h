// When machine code per batch is worth its making, on the host.
#pragma once

#include <cstddef>

namespace srjit {

/// Seconds of one core for one node of an expression, measured with `sr-jit-bench
/// --benchmark_filter='evaluate|compile'` on an AMD EPYC (Zen 4, 512-bit vectors, 3.65 GHz), f32 fast, 2026-11-21:
/// between the populations "mixed" (120e-6, 0.084e-9 and 0.052e-9) and "arithmetic" (22e-6, 0.045e-9 and 0.0135e-9).
/// Only their ratio matters, which processors share more than the seconds. Where library functions dominate, as in
/// precise, compiling gains nothing and costs little.
inline constexpr double kCompileSecondsPerNode = 40e-6;
inline constexpr double kInterpretSecondsPerNodeRow = 0.07e-9;
inline constexpr double kCompiledSecondsPerNodeRow = 0.03e-9;

/// Whether compiling costs less than it saves. Nodes cancel: both sides are proportional to them; so do cores.
constexpr bool compilingPays(double evaluations, std::size_t rows) {
  return evaluations * static_cast<double>(rows) * (kInterpretSecondsPerNodeRow - kCompiledSecondsPerNodeRow) >
         kCompileSecondsPerNode;
}

}  // namespace srjit
