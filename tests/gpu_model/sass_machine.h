// A model of one warp of a GPU that runs the instructions of the direct tier: 32 lanes, registers, predicates, barriers
// and memory. It throws SassFault for invalid code: a read of a register before its result is ready, an overwrite of a
// register with a pending read or write, a wait for a barrier too soon after it was set, an access outside of memory,
// divergence. A result of variable latency is ready only after a wait for its barrier.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <map>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "compiler/sass/encode.h"
#include "compiler/sass/instruction.h"

namespace srjit {

struct SassFault : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Memory as pieces at artificial addresses, with unused space between them.
class SassMemory {
 public:
  virtual ~SassMemory() = default;
  /// Maps the piece; returns its address, a multiple of 256. `bytes` must outlive the memory.
  std::uint64_t add(std::span<std::byte> bytes);
  template <class T>
  std::uint64_t add(std::vector<T>& values) {
    return add(std::as_writable_bytes(std::span(values)));
  }
  std::uint32_t load(std::uint64_t address) const;
  void store(std::uint64_t address, std::uint32_t value);

 private:
  /// The four bytes at an address; throws SassFault if it is unmapped or misaligned.
  virtual std::byte* find(std::uint64_t address) const;
  std::map<std::uint64_t, std::span<std::byte>> pieces_;
  std::uint64_t next_ = 0x7f0000000000;
};

/// MUFU, as libm has it: subnormal operands and results are zeros. Of functions of doubles, the bits are upper words.
float specialFunction(sass::Mufu function, float x);

class SassMachine {
 public:
  /// `bank` is constant bank 0. `registers` is the number per thread.
  SassMachine(std::span<const sass::Instruction> code, std::span<const std::byte> bank, SassMemory& memory,
              unsigned registers, unsigned architecture);

  /// Perturbs results of MUFU by up to `units` units in the last place, since GPUs specify only an error bound.
  void setInaccuracy(std::uint32_t units) { inaccuracy_ = units; }

  template <class T>
  struct Operands;

  /// Runs one warp of a block to its end. Returns the number of issued instructions.
  std::size_t runWarp(unsigned warp, unsigned block_x, unsigned block_y);

 private:
  static constexpr unsigned kLanes = 32;
  using Lanes = std::array<std::uint32_t, kLanes>;
  using Cycle = std::int64_t;

  /// What the architecture decides about a form.
  struct FormFacts {
    bool is_available;
    sass::Timing timing;
  };
  /// The history of a register or predicate for the timing checks.
  struct Timing {
    Cycle written = 0, read = -100;
    int writer = -1;            ///< form of a writer of fixed latency
    std::uint8_t to_write = 0;  ///< barriers of instructions that still write it
    std::uint8_t to_read = 0;   ///< barriers of instructions that still read it
  };

  const FormFacts& factsOf(sass::Form form) const { return forms_[static_cast<std::size_t>(form)]; }
  [[noreturn]] void fault(const std::string& what) const;
  void checkTiming(const sass::Instruction& i);
  /// A register or predicate, for messages.
  struct Place {
    const char* file;
    unsigned number;
  };
  static std::string textOf(Place what);
  void checkRead(Timing& timing, unsigned delay, Place what);
  void checkWrite(const Timing& timing, const sass::Instruction& i, Place what);
  void markTiming(const sass::Instruction& i);
  void execute(const sass::Instruction& i);
  template <class T>
  void compute(const sass::Instruction& i, std::uint32_t active);
  template <class T>
  void compare(const sass::Instruction& i, std::uint32_t active);
  void executeOther(const sass::Instruction& i, std::uint32_t active);
  void executeMemory(const sass::Instruction& i, std::uint32_t active);
  void executeControl(const sass::Instruction& i, std::uint32_t active);
  std::uint32_t predicate(unsigned number) const;
  void writePredicate(unsigned number, std::uint32_t value, std::uint32_t active);
  float inaccurate(float x);
  template <class T>
  T operand(const sass::Instruction& i, unsigned slot, unsigned lane) const;
  std::uint32_t bits(unsigned r, unsigned lane) const { return r == sass::kZero ? 0 : registers_[r][lane]; }
  std::uint64_t wideBits(unsigned r, unsigned lane) const;
  void write(unsigned r, unsigned lane, std::uint32_t value);
  /// Of 32 bits, or of 64 in two registers.
  template <class T>
  void writeNumber(unsigned r, unsigned lane, T value) {
    if (r == sass::kZero) return;
    const auto wide = std::bit_cast<std::array<std::uint32_t, sizeof(T) / sizeof(std::uint32_t)>>(value);
    for (unsigned word = 0; word < wide.size(); ++word) write(r + word, lane, wide[word]);
  }
  std::uint32_t constant(std::uint32_t offset) const;

  std::span<const sass::Instruction> code_;
  std::span<const std::byte> bank_;
  SassMemory& memory_;
  unsigned register_count_, architecture_;
  std::array<FormFacts, sass::kForms> forms_;

  std::array<Lanes, 256> registers_{};
  std::array<std::uint32_t, 8> predicates_{};
  std::array<Timing, 256> register_timing_{};
  std::array<Timing, 8> predicate_timing_{};
  std::array<Cycle, 6> barrier_set_{};
  Timing descriptor_{};
  bool has_descriptor_ = false;
  unsigned warp_ = 0, block_x_ = 0, block_y_ = 0;
  std::size_t at_ = 0, next_ = 0;
  Cycle now_ = 0;
  bool is_done_ = false;
  std::uint32_t inaccuracy_ = 0;
  std::uint64_t hash_ = 1;
};

}  // namespace srjit
