// Batches over the rows of a data set, on all threads of the calling thread's arena.
#pragma once

#include <cstddef>
#include <functional>

#include "runtime/evaluation/dataset_state.h"
#include "runtime/evaluation/loss_value.h"
#include "runtime/host/batches.h"

namespace srjit {

/// Writes output o of all batches to out + o * rows, in the precision. `table` has the entries of batches.parameters(),
/// filled in, and the data have all variables. Throws an ErrorException (kLimit) if the deadline is over before a block
/// of rows. Borrows everything.
void predictOnHost(const HostBatches& batches, const Dataset::State& data, const std::byte* table, unsigned threads,
                   const Deadline& deadline, std::byte* out);

/// Calls `take` once for each output, from several threads of the arena at the same time, with its sums over the rows.
/// Otherwise as predictOnHost().
using TakeSums = std::function<void(std::size_t output, const LossSums& sums)>;
void sumOnHost(const HostBatches& batches, const Dataset::State& data, const std::byte* table, unsigned threads,
               const Deadline& deadline, HostLossKernel kernel, const LossSpec& spec, const TakeSums& take);

}  // namespace srjit
