// When machine code per batch is worth its making, on the host.
#pragma once

#include <cstddef>

namespace srjit {

/// Seconds of one core, measured by `sr-jit-bench --benchmark_filter=cost` on one core of an AMD EPYC (Zen 4, 512-bit
/// vectors), f32 fast, mixed population, 2026-11-21. What matters is their ratio, which processors share more than the
/// seconds.
inline constexpr double kCompileSecondsPerNode = 30e-6;
inline constexpr double kInterpretSecondsPerNodeRow = 0.25e-9;
inline constexpr double kCompiledSecondsPerNodeRow = 0.12e-9;

/// Whether compiling costs less than it saves. Nodes cancel: both sides are proportional to them; so do cores.
constexpr bool compilingPays(double passes, std::size_t rows) {
  return passes * static_cast<double>(rows) * (kInterpretSecondsPerNodeRow - kCompiledSecondsPerNodeRow) >
         kCompileSecondsPerNode;
}

}  // namespace srjit
