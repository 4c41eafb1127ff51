// Options of the direct tier and a graph, from an input of graph_input.h.
#pragma once

#include <optional>
#include <vector>

#include "compiler/direct/emitter.h"
#include "ir/losses.h"
#include "passes/pass.h"
#include "tests/fuzz/harness/graph_input.h"

namespace srjit::fuzz {

inline DirectOptions directOptionsFrom(ByteReader& bytes) {
  constexpr unsigned kWindows[] = {1, 2, 8, 24, 32};
  constexpr unsigned kRegisters[] = {64, 64, 40, 48};
  DirectOptions options;
  options.architecture = directArchitectures()[bytes.below(directArchitectures().size())];
  const std::uint8_t modes = bytes.byte(), loss = bytes.byte(), shape = bytes.byte();
  options.precision = modes % 2 == 0 ? Precision::kF32 : Precision::kF64;
  options.math = kMathModes[modes / 2 % std::size(kMathModes)];
  options.subroutines = modes >= 192 && options.precision == Precision::kF32;
  if (loss % 2 == 1) {
    const auto terms = kernelLossTerms();
    options.loss = LossSpec{terms[loss / 8 % terms.size()].term, loss / 2 % 2 == 1, loss / 4 % 2 == 1};
  }
  options.window = options.subroutines ? 1 : kWindows[shape % std::size(kWindows)];
  options.registers = options.subroutines ? 64 : kRegisters[shape / 8 % std::size(kRegisters)];
  options.roots = shape / 32 == 0 ? 1 : kDirectRoots;
  return options;
}

/// As engines prepare it.
inline Dag directGraphFrom(const std::vector<Expression>& batch, const DirectOptions& options) {
  return Pipeline::standard(options.math).run(Dag::fromExpressions(batch, options.precision), {options.math});
}

}  // namespace srjit::fuzz
