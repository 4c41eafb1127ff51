// Generations of a population with and without values of subtrees that are kept from one to the next.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "tools/bench/work.h"

namespace srjit {

/// `count` generations: of "formula" (klein_nishina.h), or of another population of findPopulation(), in which one
/// expression in three is new in each generation.
std::vector<std::vector<Expression>> generationsOf(std::string_view population, std::size_t count,
                                                   std::size_t expressions);

/// Evaluates each generation twice, from expressions to losses: by a program that may read subtrees kept with these
/// data, and by one that computes everything. The order alternates. Adds figures of both from the third generation on,
/// the first that can read kept values. Throws BenchFailure if one bit of the losses differs.
void timeKept(const Bench& bench, const Engine& engine, const Dataset& data,
              std::span<const std::vector<Expression>> generations, Tier tier, const Subject& subject);

}  // namespace srjit
