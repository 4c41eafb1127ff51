// How the interpreter's launches divide programs and rows.
#pragma once

#include <cstddef>

#include "compiler/interpreter/kernel.h"
#include "ir/numeric.h"
#include "runtime/code/parts.h"
#include "runtime/cuda/context.h"

namespace srjit {

/// The geometry for `rows` rows at once: rows per thread and row_warps so that few threads idle, programs per warp so
/// that every multiprocessor gets several blocks and a block's tokens are a small part of its memory. Sections with
/// long programs get a window.
InterpreterGeometry chooseGeometry(const InterpreterCode& code, const InterpreterSection& section, std::size_t rows,
                                   Precision precision, const DeviceLimits& limits);

}  // namespace srjit
