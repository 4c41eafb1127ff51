// A long comparison of two ways to evaluate.
#pragma once

#include <cstddef>

#include "ir/numeric.h"
#include "runtime/engine.h"

namespace srjit {

/// Evaluates by this tier of the engine.
struct Evaluator {
  Engine engine;
  Tier tier;
};

/// Compares all predictions and losses of random populations, of all operators and at most `most_expressions`
/// expressions, over random data of random size, bit for bit, for SRJIT_SOAK_SECONDS seconds (default 2), and prints
/// how many. Expects that half of the expressions or more have code of `one.tier`, if that is not the interpreter. Both
/// engines have the precision. Six threads draw from SRJIT_SOAK_SEED (default 1000) and the numbers after it, so a run
/// with a seed six higher compares others.
void soak(const Evaluator& one, const Evaluator& other, Precision precision, std::size_t most_expressions = 500);

}  // namespace srjit
