// Programs for the GPU's interpreter.
#pragma once

#include <cstddef>

#include "runtime/code/parts.h"

namespace srjit {

/// Encodes the expressions of the order, in parallel on the calling thread's arena. Those that the interpreter cannot
/// run (too many slots or columns) are failures with kUnsupported; those that passes refuse, with kInvalid. Throws
/// CudaFailure, OutOfMemory, std::bad_alloc.
DeviceCode encodeForDevice(KernelStore& store, const CompileOrder& order);

/// Whether the device encodes these expressions in encodeForDevice() once its kernels are loaded
/// (KernelStore::frontEnd()): many short ones, whose programs are not looked for in the generation before.
bool isEncodedOnDevice(const ProgramSource& source);
/// The same for these numbers of expressions and tokens, with neither a pipeline nor a derivation.
bool isEncodedOnDevice(std::size_t expressions, std::size_t tokens);
/// The most parts of a population of this number of expressions that are each large enough for the device. Parts have
/// about equal numbers of tokens, so one may have a fifth fewer expressions than the mean.
std::size_t mostPartsForDevice(std::size_t expressions);

/// Whether encodeForDevice() failed for want of room in the interpreter, which machine code may have.
inline bool isRefusal(const Failure& failure) { return failure.error.code == Errc::kUnsupported; }

/// Columns that all programs of an interpreter's launch may have between them; where there are more, launches have
/// neighbours that share columns.
std::size_t stagedColumnLimit(const DeviceLimits& limits, Precision precision);

}  // namespace srjit
