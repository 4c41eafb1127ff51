// Division of a population into parts that are evaluated one after another.
#pragma once

#include <cstddef>
#include <vector>

#include "ir/population.h"

namespace srjit {

/// Divides a population, which checkArrays() accepts, into adjacent expressions of about as many tokens each: at most
/// `count` parts, and at least one. A part has no offset before its own. Borrowed from the population.
std::vector<PopulationView> divide(const PopulationView& population, std::size_t count);

}  // namespace srjit
