// PTX common to the interpreters and the transpiled kernels: a prologue that computes the row of a thread, and an
// epilogue that consumes its value. The code between them leaves the value in %r.
//
// Kernels have the parameters u64 columns, u32 rows, u64 parameters, u64 target, u64 out; then kernel-specific ones. A
// block of kBaselineThreads threads computes as many rows, of the expression whose number is ctaid.y.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace srjit {

/// Begins a module with one kernel: `more_parameters` continues the list of parameters ("" or ", .param ..."),
/// `declarations` are registers and memory of its own. Leaves the address of the row in the first column in %column,
/// the bytes between columns in %pitch, and %row, the last row where it is %beyond the end. %a to %c (b64), %i and %j
/// (b32), %x, %y, %t (f32) and %p are free, as are the temporaries of operators.def.
void beginBaselineKernel(std::string_view name, std::string_view more_parameters, std::string_view declarations,
                         std::string& ptx);

/// The epilogue: adds the block's squared errors to the sum of the expression, by shuffles and one atomic addition; or
/// stores predictions.
void endBaselineKernel(std::string& ptx);

/// Jumps to the label CASE_n for the n in %code, first <= n < last, by a binary search. Overwrites %p.
void writeBaselineDispatch(std::size_t first, std::size_t last, std::string& ptx);

/// Adds %r of all threads of the block to the sum number %ia of those at %b, and ends the kernel. All threads must get
/// here.
void writeBaselineSum(std::string& ptx);

}  // namespace srjit
