// The GPU's interpreter: one kernel that runs the programs of compiler/interpreter/encoder.h. Thread-safe and
// parallel.
//
// Kernel `srjit_interpreter`: u64 columns, u64 column_stride, u64 row_stride, u64 rows, u64 parameters, u64 column_map
// (u32 per staged column: the number of its column), u64 tokens, u64 program_offsets (u32, programs + 1: number of a
// program's first token), u32 programs, u32 programs_per_warp, u32 row_warps (1, 2 or 4), u32 tiles, u32
// staged_columns, u32 slots, u32 window, then the output parameters of rows kernels (compiler/nvptx/kernels.h); the
// output's number is in the program. A block covers a tile of row_warps adjacent strips with kBlockWarps / row_warps
// teams of row_warps warps; team t of block b runs programs_per_warp programs from number (b / tiles * teams + t) *
// programs_per_warp, on tile b % tiles. Grid: x = tiles * ceil(programs / (programs_per_warp * teams)), tiles =
// ceil(rows / (row_warps * 32 * K)). Dynamic shared memory in bytes: interpreterSharedBytes(). It holds all
// tokens of the block's programs where these fit or window = 0; otherwise each warp holds `window` tokens of its team
// there at a time, so programs may have any length. compiler/nvptx/options.h describes geometry and columns.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "compiler/interpreter/handler_table.h"
#include "compiler/nvptx/options.h"
#include "ir/error.h"

namespace srjit {

inline constexpr const char* kInterpreterKernel = "srjit_interpreter";

/// The launch of an interpreter.
struct InterpreterGeometry {
  unsigned rows_per_thread;
  unsigned row_warps;  ///< 1, 2 or 4
  unsigned programs_per_warp;
  unsigned window = 0;  ///< tokens that a warp of a block holds at once whose tokens do not fit; 0: all fit
};

/// Whether a token in shared memory has the value of its parameter after its two words; a 32-bit value replaces one of
/// them instead.
constexpr bool hasValueBehindToken(Precision precision) { return bytesOf(precision) > 4; }

/// Bytes of a token in shared memory.
constexpr unsigned sharedTokenBytes(Precision precision) { return hasValueBehindToken(precision) ? 16 : 8; }

/// Bytes of dynamic shared memory of one block: staged columns, slots, and the tokens of its programs with two halts
/// for each team, or the window of each warp with two more tokens. `block_tokens` is the largest number of tokens that
/// the programs of one block have; ignored with a window.
std::size_t interpreterSharedBytes(Precision precision, const InterpreterGeometry& geometry, std::size_t staged_columns,
                                   std::size_t slots, std::size_t block_tokens);

/// The interpreter for a table of handlers, which fixes precision, math mode, rows per thread and depth; `options` must
/// agree with it. Errors: as rowsPtx() (compiler/nvptx/kernels.h).
Result<std::string> interpreterPtx(const HandlerTable& table, const DeviceOptions& options);
Result<std::string> interpreterIr(const HandlerTable& table, const DeviceOptions& options, bool optimized);

/// The kernels of compiler/interpreter/lanes/arguments.h, as clang has compiled them; empty where this library was
/// built without clang 19.
std::span<const std::byte> lanesBitcode() noexcept;

/// PTX of these kernels, for every precision and math mode; of the options, only arch counts. Thread-safe. Errors:
/// kInvalid for an unknown architecture, kUnsupported without the kernels.
Result<std::string> lanesPtx(const DeviceOptions& options);

}  // namespace srjit
