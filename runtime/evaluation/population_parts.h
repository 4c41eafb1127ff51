// Losses of a population that is evaluated once, in parts: while the device evaluates one, the next is prepared.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "ir/error.h"
#include "ir/population.h"
#include "runtime/program.h"
#include "runtime/results.h"

namespace srjit {

/// Divides a population, which checkArrays() accepts, into adjacent expressions of about as many tokens each: at most
/// `count` parts, and at least one. A part has no offset before its own. Borrowed from the population.
std::vector<PopulationView> divide(const PopulationView& population, std::size_t count);

/// What is done for a part. May throw what guarded() catches.
struct PartSteps {
  /// Called for one part after another.
  std::function<Program(const PopulationView& part, bool is_first)> prepare;
  /// Likewise, and for a part that prepare() has returned. One part may be submitted while the next is prepared.
  std::function<Result<Pending<Losses>>(const Program& program, std::span<const double> parameters)> submit;
};

/// The losses of all parts, in order; failures have the numbers of the whole population. Uses threads of the calling
/// thread's arena. Errors: that of the first part that cannot be submitted, and wrongParameterCount(); what is in
/// flight then has ended. Throws std::bad_alloc.
Result<Pending<Losses>> submitParts(std::span<const PopulationView> parts, std::span<const double> parameters,
                                    const PartSteps& steps);

/// kInvalid: an evaluation got so many parameters.
Error wrongParameterCount(std::size_t given, std::size_t expected);

}  // namespace srjit
