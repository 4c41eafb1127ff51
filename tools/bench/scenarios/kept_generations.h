// Generations of a population with and without values of subtrees that are kept from one to the next.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "tools/bench/gpu_context.h"

namespace srjit {

using Generation = std::vector<Expression>;

/// `count` generations: of "mit-generation" (klein_nishina.h), or of another population of findPopulation(), in which
/// one expression in three is new in each generation.
std::vector<Generation> generationsOf(std::string_view population, std::size_t count, std::size_t expressions);

/// Evaluates each generation twice, from expressions to losses: by a program that may read subtrees kept with these
/// data ("kept"), and by one that computes everything ("computed"). The order alternates. Per generation, the JSON has
/// milliseconds of preparation, of losses and of both, kernel time by the device's clock, nodes after the passes, and
/// columns read. Throws BenchFailure if one bit of the losses differs.
nlohmann::ordered_json timeGenerations(const Engine& engine, const Dataset& data,
                                       std::span<const Generation> generations, Tier tier);

}  // namespace srjit
