// Generations of a population with and without values of subtrees that are kept from one to the next.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "tools/bench/gpu_bench.h"

namespace srjit {

using Generation = std::vector<Expression>;

/// `count` generations: of "mit-generation" (klein_nishina.h), or of another population of findPopulation(), of which
/// one expression in three is a new one each time.
std::vector<Generation> generationsOf(std::string_view population, std::size_t count, std::size_t expressions);

/// Evaluates each generation twice: as a program for these data, which may read what is kept there, and as one that
/// computes everything; from expressions to losses, in turns, which of them is first. Gives, for each generation,
/// milliseconds of making ready, of losses and of both, those of kernels on the device's clock, nodes after the passes,
/// and columns that were read; as "kept" and "computed". Throws BenchFailure if one bit of the losses differs.
nlohmann::ordered_json timeGenerations(const Engine& engine, const Dataset& data,
                                       std::span<const Generation> generations, Tier tier);

}  // namespace srjit
