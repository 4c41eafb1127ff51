// The loop over the points of a scenario.
#pragma once

#include "tests/faults/kinds.h"
#include "tests/faults/scenarios.h"

namespace srjit {

/// Runs the scenario with the fault at point n, for n = 1, 2, ... until it no longer happens, each time on a new
/// machine. A run is a preparation without faults, the calls with the fault, the calls again without, and the end of
/// all objects. Fails the test, with scenario, fault and n, unless
/// - the calls gave the bits of a run without faults, or errors of a fitting code that name what failed;
/// - after them the same calls give those bits, or, where a device was lost, errors;
/// - the model of the driver has nothing left that was not freed, the process no more open files than before, and
///   LeakSanitizer, where it is, nothing to report. It is asked where more allocations live than after any point
///   before, and at the end.
/// Where there are more than kEveryPoint points, those of every kStride-th n are tried;
/// SRJIT_FAULT_STRIDE=1 in the environment tries all. SRJIT_FAULT_POINT=n tries point n alone, and prints the calls of
/// the driver.
void tryEveryPoint(const Scenario& scenario, const FaultKind& kind);

#ifdef SRJIT_SANITIZED
inline constexpr std::size_t kEveryPoint = 60, kStride = 29;  // a point takes several times as long
#else
inline constexpr std::size_t kEveryPoint = 400, kStride = 7;
#endif

/// Makes a process that ends in the middle of a run say in which.
void namePointOfCrash();

}  // namespace srjit
