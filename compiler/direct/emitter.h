// The direct tier: machine code for populations, encoded by this library in microseconds instead of by LLVM and the
// assembler in milliseconds. Needs no GPU, no driver and no assembler. Thread-safe except DirectEmitter, which one
// thread uses at a time.
//
// One image with one kernel, `srjit_direct`, evaluates a whole population in one launch. Expressions come in *groups*
// of up to kDirectRoots roots; a group is straight-line code for one row per lane, in a loop over rows.
//
// Launch. Blocks of `warps` warps, grid (row_blocks, groups), one parameter: a DirectArguments, by value. Block
// (x, y) branches to the code of group y. A *step* is 32 adjacent rows, one per lane of the warp; four steps are one
// *row group* of the reduction tree (ir/numbers/loss_sums.h). Warp w of block x takes the row groups x * warps + w, +
// warps * row_blocks, and so on. Warps without rows exit at once.
//
// Numbers are not in the code: literals and parameters are read from one table in the order of use, and outputs from
// another, so changing them needs a copy but no new code. Lanes past the last row compute the last row again and write
// nothing; their terms are +0.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "compiler/sass/cubin.h"
#include "compiler/sass/instruction.h"
#include "compiler/target/architecture.h"
#include "ir/error.h"
#include "ir/numbers/loss_sums.h"
#include "ir/numeric.h"
#include "passes/dag.h"

namespace srjit {

inline constexpr const char* kDirectKernel = "srjit_direct";
inline constexpr unsigned kDirectMostWarps = 32;  ///< per block
inline constexpr unsigned kDirectRoots = 32;
inline constexpr std::size_t kDirectExits = 8192;  ///< per kernel; further exits become branches to a listed one

/// The items of a root: its channels of moments (LossSpec), each of which has a lane of its own. Other losses, and
/// predictions, have one item; the lane of a loss writes its counts, too.
constexpr unsigned directItems(const std::optional<LossSpec>& loss) {
  return loss && isOfMoments(loss->term) ? static_cast<unsigned>(loss->channels()) : 1;
}

/// The purpose of the code: device, loss, and bounds.
struct DirectOptions {
  unsigned architecture = kDefaultArchitecture;  ///< one of directArchitectures()
  Precision precision = Precision::kF32;
  Math math = Math::kPrecise;
  std::optional<LossSpec> loss = {};  ///< none: predictions
  unsigned roots = kDirectRoots;      ///< at most this number per group; 1 to kDirectRoots
  unsigned registers = 64;            ///< maximum per thread; 40 to 64, so that every scheduler holds 8 warps
  unsigned window = 8;                ///< instructions among which the scheduler chooses, 1 (source order) to 32
  bool subroutines = false;  ///< long operators are subroutines of their group; only f32, 64 registers, source order

  friend bool operator==(const DirectOptions&, const DirectOptions&) = default;
};

/// One entry of the table of groups, as the kernel reads it.
struct DirectGroup {
  std::uint32_t code;       ///< offset of its code in bytes from the start of the kernel
  std::uint32_t parameter;  ///< its first entry in the table of numbers; a multiple of 4
  std::uint32_t output;     ///< its first entry in the table of outputs; a multiple of 4
  std::uint32_t outputs;    ///< items of its roots
};
static_assert(sizeof(DirectGroup) == 16);

/// The kernel's parameter. Pointers are device addresses; strides are in bytes, and so is the size s of a number, 4 or
/// 8. All sums of a loss have one layout: the sum of row group g of output o is at base + o * output_stride + s * g.
/// The channels of moments are outputs of their own.
struct DirectArguments {
  std::uint64_t columns;  ///< value of row r in column c: columns + c * column_stride + r * row_stride
  std::uint64_t target;   ///< of row r: target + s * r; losses only, as are the next three
  std::uint64_t weights;  ///< as target; only where LossSpec::weighted
  std::uint64_t counts;   ///< out: valid rows, only where LossSpec::skip_invalid
  /// Out: weights of valid rows, only where both. Of moments instead the bits of the target's centre in the precision,
  /// the lowest ones.
  std::uint64_t kept_weights;
  std::uint64_t results;  ///< out: sums of the terms; or prediction of row r: results + o * output_stride + s * r
  std::uint64_t numbers;  ///< 16-byte aligned
  std::uint64_t outputs;  ///< u32, 16-byte aligned: output number of each entry
  std::uint64_t groups;   ///< DirectGroup, 16-byte aligned
  std::uint32_t rows;     ///< 1 to directMaxRows()
  std::uint32_t column_stride;
  std::uint32_t row_stride;  ///< s where values of a column are adjacent
  std::uint32_t output_stride;
  std::uint32_t row_jump;  ///< directRowJump()
  std::uint32_t warps;     ///< per block
};
static_assert(sizeof(DirectArguments) == 96);

/// Rows of one launch: their predictions take at most 1 GiB per output, which output_stride has 32 bits for.
constexpr std::uint32_t directMaxRows(Precision precision) {
  return (1u << 30) / static_cast<std::uint32_t>(bytesOf(precision));
}

/// How a launch divides the rows.
struct DirectGrid {
  std::uint32_t row_blocks;  ///< blocks that share the rows of a group, at least 1
  std::uint32_t warps;       ///< warps per block, 1 to kDirectMostWarps

  friend bool operator==(const DirectGrid&, const DirectGrid&) = default;
};

/// Rows from the end of a warp's row group to its next one.
constexpr std::uint32_t directRowJump(DirectGrid grid) {
  return static_cast<std::uint32_t>(kGroupRows) * (grid.row_blocks * grid.warps - 1);
}

/// Why the emitter refuses a root: "is too long, or needs more than 64 registers".
std::string tooLongText(const DirectOptions& options);

/// Code of the roots of one graph, without the kernel's prologue.
struct DirectPart {
  std::vector<sass::Word> words;    ///< whole lines of the instruction cache, so that parts can follow one another
  std::vector<DirectGroup> groups;  ///< offsets within this part
  std::vector<std::uint32_t> parameters;  ///< table of numbers: index in Dag::parameters() of each entry
  /// Table of outputs: item i of root r, which has n of them (directItems()), is entry r * n + i. Padded by kNoRoot.
  std::vector<std::uint32_t> outputs;
  std::vector<std::uint32_t> exits;    ///< offsets of EXIT instructions in bytes
  std::vector<std::uint32_t> refused;  ///< roots without code, ascending: too long, or too many registers
  unsigned registers = 0;              ///< to declare (sass::kHiddenRegisters)
  bool has_subroutines = false;        ///< some group has
  unsigned splits = 0;                 ///< groups that were halved because registers ran out
  unsigned retries = 0;                ///< groups that were generated again in source order because registers ran out

  static constexpr std::uint32_t kNoRoot = ~0u;

  /// Removes the content and keeps the capacity.
  void clear();
};

/// Which nodes of the graph the instructions of a part compute, for those who want to see it. An instruction may belong
/// to several nodes (a load of four numbers) or to none (the loop over rows, padding). The instructions of an operator
/// are those that its row of ops.def appends; a column or number has those that load it, and
/// stores belong to the root's node. Negation and magnitude have none, since most instructions take them as modifiers
/// of operands. By word of DirectPart::words; ascending, each once.
using DirectTrace = std::vector<std::vector<NodeId>>;

/// Generates code; keeps its work arrays from one graph to the next.
class DirectEmitter {
 public:
  /// Fails with kUnsupported for an architecture that is not one of directArchitectures(), and with kInvalid for other
  /// options out of range.
  static Result<DirectEmitter> create(const DirectOptions& options);
  DirectEmitter(DirectEmitter&&) noexcept;
  DirectEmitter& operator=(DirectEmitter&&) noexcept;
  ~DirectEmitter();

  /// Adjacent roots form a group, so the order of the batch decides which roots share work and columns. Precondition:
  /// `dag` is the output of the standard passes. Linear. Refused roots are no error, since other tiers evaluate them;
  /// in a precision other than that of the options, all roots are refused.
  DirectPart emit(const Dag& dag);
  /// The same into `part`, whose memory is reused: page faults of new memory cost more than writing it.
  void emit(const Dag& dag, DirectPart& part);
  /// The same, and which node each word belongs to. The words are those of the other two.
  DirectPart emit(const Dag& dag, DirectTrace& trace);

 private:
  struct State;
  explicit DirectEmitter(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

/// A kernel, ready for the writer of cubins.
struct DirectImage {
  std::vector<sass::Word> words;     ///< all words, or those before the words of the parts
  std::vector<DirectGroup> groups;   ///< of all parts in order, as the kernel reads them: the tables of numbers and of
                                     ///< outputs are those of the parts, one after another
  std::vector<std::uint32_t> exits;  ///< offsets of EXIT instructions in bytes, at most kDirectExits
  bool has_subroutines = false;      ///< some part has
  unsigned registers = 0;            ///< to declare: two more than the code names (sass::kHiddenRegisters)
};

/// Links parts to one kernel. `words` of the image are those before the parts; the words of the parts follow in order
/// and are not copied. Exits beyond kDirectExits are changed to branches in the parts. Precondition: the parts were
/// generated for the same architecture and loss. Fails with kInvalid above 2 GB of code.
Result<DirectImage> linkDirect(std::span<DirectPart> parts, const DirectOptions& options);
/// The same with all words copied; the parts are unchanged.
Result<DirectImage> joinDirect(std::span<const DirectPart> parts, const DirectOptions& options);

/// The input of the cubin writer for an image. `parts` are those passed to linkDirect(); empty for a joined image. All
/// must outlive the writing.
KernelDescription directKernel(const DirectImage& image, std::span<const DirectPart> parts = {});

}  // namespace srjit
