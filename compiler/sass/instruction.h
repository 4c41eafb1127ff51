// Machine instructions of NVIDIA GPUs, Volta's 128-bit format and its successors: their fields and their bits.
// Nothing here is documented by NVIDIA. instructions.def holds the facts, with their sources; tests compare every row
// with what the assembler makes of PTX, for every architecture that a row names. Thread-safe: no state.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace srjit::sass {

/// One row of instructions.def.
enum class Form : std::uint8_t {
#define SRJIT_SASS(id, ...) k##id,
#include "compiler/sass/instructions.def"
#undef SRJIT_SASS
};

inline constexpr std::uint8_t kZero = 255;  ///< register RZ: reads 0, writes vanish
/// Registers that a kernel must declare beyond those that its code names: the assembler declares two more in every
/// cubin since sm_70, and without them the last two are illegal (measured on an H200).
inline constexpr unsigned kHiddenRegisters = 2;
inline constexpr std::uint8_t kTrue = 7;       ///< predicate PT: always true
inline constexpr std::uint8_t kNot = 8;        ///< added to a predicate: its opposite
inline constexpr unsigned kBarriers = 6;       ///< scoreboard barriers of a warp, from 0 on
inline constexpr std::uint8_t kNoBarrier = 7;  ///< none of them

/// The execution unit of an instruction: decides the issue rate, and which instructions can be issued meanwhile.
enum class Pipe : std::uint8_t {
  kFma,      ///< float add, multiply, fused multiply-add, IMAD
  kAlu,      ///< comparisons, selects, logic, integer addition
  kSpecial,  ///< MUFU, conversions, rounding to integers
  kDouble,
  kMemory,  ///< loads, stores, shuffles
  kUniform,
  kControl,
};

/// When a consumer may read a result.
enum class Timing : std::uint8_t {
  kFixed,     ///< after `latency` cycles
  kVariable,  ///< after a wait for its write barrier; sources may be overwritten after a wait for that or its read
              ///< barrier
};

/// The scheduler's decisions about an instruction.
struct Control {
  std::uint8_t stall = 1;  ///< cycles until the warp may issue its next instruction, 0 to 15
  bool yield = false;      ///< the bit as it stands in the word
  std::uint8_t write_barrier = kNoBarrier;
  std::uint8_t read_barrier = kNoBarrier;
  std::uint8_t wait_mask = 0;  ///< barriers to wait for before issue
  std::uint8_t reuse = 0;      ///< operand slots whose register stays in the reuse cache

  friend bool operator==(const Control&, const Control&) = default;
};

/// Modifiers, as the word has them; instructions.def says how many bits a form has.
/// Comparisons: FSETP and DSETP take all, or-ed with kUnordered true for NaN, too; ISETP takes 1 to 6. Also a Combine.
enum class Compare : std::uint8_t {
  kLess = 1,
  kEqual = 2,
  kLessEqual = 3,
  kGreater = 4,
  kNotEqual = 5,  ///< false for NaN; the C operator is kNotEqual | kUnordered
  kGreaterEqual = 6,
  kOrdered = 7,
  kUnordered = 8,
};
/// Those of doubles have upper words of doubles as operand and result: the lower words count as 0.
enum class Mufu : std::uint8_t {
  kCos,
  kSin,
  kExp2,
  kLog2,
  kReciprocal,
  kReciprocalRoot,
  kReciprocalOfDouble,
  kReciprocalRootOfDouble,
  kRoot,
  kTanh
};
enum class Round : std::uint8_t { kNearest, kDown, kUp, kTowardsZero };  ///< FADD, FMUL, FFMA, DFMA, FRND
inline constexpr std::uint8_t kFlush = 4;      ///< .FTZ of FADD, FMUL, FFMA, FRND (or-ed with a Round), FMNMX
inline constexpr std::uint8_t kPropagate = 1;  ///< .NAN of FMNMX: NaN if an operand is
inline constexpr std::uint8_t kCoherent = 1;   ///< LDG without .CONSTANT: sees stores of this kernel
/// How a comparison joins its `condition`; or-ed with the Compare.
enum class Combine : std::uint8_t { kAnd = 0, kOr = 16, kXor = 32 };
constexpr std::uint8_t modifierOf(Compare compare, bool or_unordered = false,
                                  Combine combine = Combine::kAnd) noexcept {
  return static_cast<std::uint8_t>(static_cast<unsigned>(compare) | (or_unordered ? 8U : 0U) |
                                   static_cast<unsigned>(combine));
}
constexpr std::uint8_t modifierOf(Mufu function) noexcept { return static_cast<std::uint8_t>(function); }
constexpr std::uint8_t modifierOf(Round rounding) noexcept { return static_cast<std::uint8_t>(rounding); }

struct Instruction {
  Form form = Form::kNop;
  std::uint8_t guard = kTrue;        ///< predicate, or kNot + predicate
  std::uint8_t destination = kZero;  ///< register; the first of 2 or 4 for wide results
  std::array<std::uint8_t, 3> sources = {kZero, kZero,
                                         kZero};  ///< registers a, b, c; uniform registers where the form says so
  std::uint8_t negated = 0;                       ///< bit i: source i is negated
  std::uint8_t magnitude = 0;                     ///< bit i: |source i|, before the negation
  std::uint32_t immediate = 0;  ///< bits of a number, an offset in bytes (branches: from the next instruction), a lane
                                ///< mask, a constant-bank offset
  std::uint8_t predicate = kTrue;  ///< written by comparisons
  std::uint8_t condition = kTrue;  ///< read by selects, minima; kNot allowed
  std::uint8_t modifier = 0;       ///< Compare, Mufu, Round, a truth table (LOP3), a width: as the form says
  Control control = {};

  friend bool operator==(const Instruction&, const Instruction&) = default;
};

struct Word {
  std::uint64_t low = 0, high = 0;
  friend bool operator==(const Word&, const Word&) = default;
};

/// Facts of a row.
struct FormInfo {
  std::string_view name;  ///< as the disassembler writes it, without modifiers
  Pipe pipe;
  Timing timing;
  std::uint8_t latency;           ///< cycles until a fixed result may be read; typical for a variable one
  std::uint8_t result_registers;  ///< 0, 1, 2 or 4; in a predicate, too, where the form writes one
  std::array<std::uint8_t, 3> source_registers;  ///< how many registers each source reads
  bool writes_predicate, reads_condition;
};
const FormInfo& infoOf(Form form) noexcept;
/// Whether the architecture has the form. All forms are common to all, except for the two *Descriptor.
bool isAvailable(Form form, unsigned architecture) noexcept;

/// The form's timing on that architecture: double instructions have fixed delays on sm_90 and sm_100, and signal
/// barriers elsewhere.
Timing timingOf(Form form, unsigned architecture) noexcept;

/// Cycles that must lie between the issue of a kFixed `writer` and of a `reader` of its register (any source), the same
/// on all architectures.
unsigned registerDelay(Form writer, Form reader) noexcept;
/// The same for a predicate, read as the guard or as the condition of `reader`. Without an architecture, enough for
/// all.
unsigned predicateDelay(Form writer, Form reader, bool as_guard, unsigned architecture = 0) noexcept;
/// Cycles between two writers of one register or predicate, the first kFixed.
unsigned overwriteDelay(Form first, Form second, bool second_guarded) noexcept;
/// Cycles between a kFixed reader of a register and a kVariable writer of it; a kFixed writer, or a double one, needs
/// none.
inline constexpr unsigned kReadDelay = 2;
/// Cycles between ULDC of the descriptor and its readers.
inline constexpr unsigned kDescriptorDelay = 2;
/// Cycles between an instruction and the next that waits on a barrier which the first sets.
inline constexpr unsigned kBarrierDelay = 2;
/// Cycles that a branch or EXIT stalls at least, unless it branches to itself.
inline constexpr unsigned kBranchStall = 5;

/// What loads Architecture::descriptor, which loads and stores need in UR4.
Form descriptorLoadOf(unsigned architecture) noexcept;

/// The bits. Precondition: `instruction` obeys its form (fields without a slot keep their defaults, numbers fit into
/// their slots), `architecture` is one of directArchitectures() and has the form.
Word encode(const Instruction& instruction, unsigned architecture) noexcept;
/// The reverse: encode() of the result is `word`, bit for bit. Nothing if the bits are no instruction of the table.
std::optional<Instruction> decode(const Word& word, unsigned architecture) noexcept;

}  // namespace srjit::sass
