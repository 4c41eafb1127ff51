// Numbers that a caller has in the memory of a GPU.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ir/error.h"
#include "runtime/data_view.h"
#include "runtime/evaluation/executor.h"
#include "runtime/gpu/queue.h"

namespace srjit {

/// Has uploads and kernels of the queue wait for the work that is in the stream now; for none if it is 0. Needs a
/// current context. Throws CudaFailure.
void waitForWriter(const DeviceQueue& queue, std::uint64_t stream);

/// Errors: kUnsupported for memory that is not the queue's device's. Needs a current context.
Status checkOwner(const char* what, const DeviceQueue& queue, const DeviceMatrix& matrix);

/// Errors: kInvalid for another precision or size, and for a matrix without rows.
Status checkMatrix(const char* what, const DeviceMatrix& matrix, std::size_t rows, std::size_t columns,
                   Precision precision);

/// Copies one column, target or weights, which are checked on the host, as those of Engine::upload() are. Errors: those
/// of checkMatrix(), kInvalid for a stride that is not positive, kUnsupported for memory that is not the device's.
/// Needs a current context. Throws CudaFailure and OutOfMemory.
Result<HostColumn> fetchColumn(const char* what, const DeviceQueue& queue, const DeviceMatrix& matrix, std::size_t rows,
                               Precision precision);

}  // namespace srjit
