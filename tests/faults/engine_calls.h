// Calls of Engine that scenarios try, on any device.
#pragma once

#include "tests/faults/scenarios.h"

namespace srjit {

/// Expressions for a scenario: few, since each of their allocations is a point.
struct Size {
  std::size_t expressions = 3, rows = 140;
};

Calls creation(World& world, const EngineOptions& options);
/// All of the life of an engine, from the first thread that it starts: data, a program, losses, a fit in flight.
Calls wholeLife(World& world, const EngineOptions& options);
/// A new engine, and one evaluation: what an engine makes at its first use.
Calls firstUse(World& world, const EngineOptions& options);
Calls uploads(World& world, const EngineOptions& options);
/// A new program of expressions, with its first losses and predictions.
Calls compilation(World& world, const EngineOptions& options, Size size = {});
/// Likewise of token arrays, through Engine::compile and through Engine::loss of a population.
Calls tokenArrays(World& world, const EngineOptions& options);
/// Predictions of a program that has served before.
Calls predictions(World& world, const EngineOptions& options, Size size = {});
Calls severalVectors(World& world, const EngineOptions& options);
Calls losses(World& world, const EngineOptions& options);
Calls gradients(World& world, const EngineOptions& options);
Calls fits(World& world, const EngineOptions& options);
/// Evaluations in flight, of which some are dropped.
Calls flights(World& world, const EngineOptions& options);
Calls fitsInFlight(World& world, const EngineOptions& options);
/// Generations of a search whose subtrees are kept.
Calls generations(World& world, const EngineOptions& options);
/// Columns and output in the memory of the GPU.
Calls deviceMemory(World& world, const EngineOptions& options);

}  // namespace srjit
