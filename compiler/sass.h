// Machine instructions of NVIDIA GPUs, Volta's 128-bit format and its successors: what an instruction is, and its bits.
// Nothing here is documented by NVIDIA. sass.def holds the facts, with their sources; tests compare every row with what
// the assembler makes of PTX, for every architecture that a row names. Thread-safe: no state.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace srjit::sass {

/// One row of sass.def.
enum class Form : std::uint8_t {
#define SRJIT_SASS(id, ...) k##id,
#include "compiler/sass.def"
#undef SRJIT_SASS
};

inline constexpr std::uint8_t kZero = 255;     ///< register RZ: reads 0, writes vanish
inline constexpr std::uint8_t kTrue = 7;       ///< predicate PT: always true
inline constexpr std::uint8_t kNot = 8;        ///< added to a predicate: its opposite
inline constexpr std::uint8_t kNoBarrier = 7;  ///< of the six scoreboard barriers 0 to 5, none

/// Who executes an instruction: what else can be issued meanwhile, and at which rate.
enum class Pipe : std::uint8_t {
  kFma,      ///< float add, multiply, fused multiply-add, IMAD
  kAlu,      ///< comparisons, selects, logic, integer addition
  kSpecial,  ///< MUFU, conversions, rounding to integers
  kDouble,
  kMemory,   ///< loads, stores, shuffles
  kUniform,
  kControl,
};

/// How a consumer knows that a result is there.
enum class Timing : std::uint8_t {
  kFixed,     ///< after `latency` cycles
  kVariable,  ///< when its write barrier was waited for; sources may be overwritten when that or its read barrier was
};

/// What the scheduler decides about an instruction.
struct Control {
  std::uint8_t stall = 1;  ///< cycles until the warp may issue its next instruction, 0 to 15
  bool yield = false;      ///< the bit as it stands in the word
  std::uint8_t write_barrier = kNoBarrier;
  std::uint8_t read_barrier = kNoBarrier;
  std::uint8_t wait_mask = 0;  ///< barriers to wait for before issue
  std::uint8_t reuse = 0;      ///< operand slots whose register stays in the reuse cache

  friend bool operator==(const Control&, const Control&) = default;
};

/// Modifiers; what a form does not have must keep its default.
enum class Compare : std::uint8_t { kLess = 1, kEqual = 2, kLessEqual = 3, kGreater = 4, kNotEqual = 5, kGreaterEqual = 6 };
enum class Mufu : std::uint8_t { kCos, kSin, kExp2, kLog2, kReciprocal, kReciprocalRoot, kRoot, kTanh };
enum class Round : std::uint8_t { kNearest, kDown, kUp, kTowardsZero };

struct Instruction {
  Form form;
  std::uint8_t guard = kTrue;        ///< predicate, or kNot + predicate
  std::uint8_t destination = kZero;  ///< register; the first of 2 or 4 for wide results
  std::array<std::uint8_t, 3> sources = {kZero, kZero, kZero};  ///< registers a, b, c; uniform registers where the form says so
  std::uint8_t negated = 0;    ///< bit i: source i is negated
  std::uint8_t magnitude = 0;  ///< bit i: |source i|, before the negation
  std::uint32_t immediate = 0;  ///< bits of a number, an offset in bytes (branches: from the next instruction), a lane mask, a constant-bank offset
  std::uint8_t predicate = kTrue;   ///< written by comparisons
  std::uint8_t condition = kTrue;   ///< read by selects, minima; kNot allowed
  std::uint8_t modifier = 0;        ///< Compare, Mufu, Round, a truth table (LOP3), a width: as the form says
  Control control = {};

  friend bool operator==(const Instruction&, const Instruction&) = default;
};

struct Word {
  std::uint64_t low = 0, high = 0;
  friend bool operator==(const Word&, const Word&) = default;
};

/// Facts of a row.
struct FormInfo {
  std::string_view name;      ///< as the disassembler writes it, without modifiers
  Pipe pipe;
  Timing timing;
  std::uint8_t latency;       ///< cycles until a fixed result may be read; typical for a variable one
  std::uint8_t result_registers;  ///< 0, 1, 2 or 4; in a predicate, too, where the form writes one
  std::array<std::uint8_t, 3> source_registers;  ///< how many registers each source reads
  bool writes_predicate, reads_condition;
};
const FormInfo& infoOf(Form form) noexcept;

/// sm_80 is 80. Architectures with rows for every form; others have no direct tier.
std::span<const unsigned> architectures() noexcept;

/// The bits. Precondition: `instruction` obeys its form, `architecture` is one of architectures().
Word encode(const Instruction& instruction, unsigned architecture) noexcept;
/// The reverse; nothing if the bits are no instruction of the table.
std::optional<Instruction> decode(const Word& word, unsigned architecture) noexcept;
/// As nvdisasm writes it, e.g. "@!P0 FADD R5, |R4|, -R7"; `with_control` appends what Control says.
std::string print(const Instruction& instruction, bool with_control = false);

}  // namespace srjit::sass
