// A model of one warp of a GPU that runs the instructions of the direct tier: 32 lanes, registers, predicates, barriers
// and memory. It throws SassFault where code does what it must not: reads a register before its writer's result is
// there, overwrites one that is still to be read or written, waits for a barrier too early, leaves memory, diverges.
// Results of variable latency count as missing until their barrier is waited for.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "compiler/sass/instruction.h"

namespace srjit {

struct SassFault : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Memory as pieces at made-up addresses, with unused space between them.
class SassMemory {
 public:
  virtual ~SassMemory() = default;
  /// Makes the piece visible; gives its address, a multiple of 256. `bytes` must stay.
  std::uint64_t add(std::span<std::byte> bytes);
  template <class T>
  std::uint64_t add(std::vector<T>& values) {
    return add(std::as_writable_bytes(std::span(values)));
  }
  std::uint32_t load(std::uint64_t address) const;
  void store(std::uint64_t address, std::uint32_t value);

 private:
  /// The four bytes at an address; throws where there is no memory, or if it is misaligned.
  virtual std::byte* find(std::uint64_t address) const;
  std::map<std::uint64_t, std::span<std::byte>> pieces_;
  std::uint64_t next_ = 0x7f0000000000;
};

/// MUFU, as libm has it: subnormal operands and results are zeros.
float specialFunction(sass::Mufu function, float x);

class SassMachine {
 public:
  /// `bank` is constant bank 0. `registers` is how many a thread has.
  SassMachine(std::span<const sass::Instruction> code, std::span<const std::byte> bank, SassMemory& memory,
              unsigned registers, unsigned architecture)
      : code_(code), bank_(bank), memory_(memory), register_count_(registers), architecture_(architecture) {}

  /// Makes results of MUFU wrong by up to so many units in the last place, since those of GPUs are only known to be
  /// close.
  void setInaccuracy(std::uint32_t units) { inaccuracy_ = units; }

  /// Runs one warp of a block to its end. Gives the instructions that it issued.
  std::size_t runWarp(unsigned warp, unsigned block_x, unsigned block_y);

 private:
  static constexpr unsigned kLanes = 32;
  using Lanes = std::array<std::uint32_t, kLanes>;
  using Cycle = std::int64_t;

  /// The history of a register or predicate, as far as timing is concerned.
  struct Timing {
    Cycle written = 0, read = -100;
    int writer = -1;            ///< form of a writer of fixed latency
    std::uint8_t to_write = 0;  ///< barriers of instructions that still write it
    std::uint8_t to_read = 0;   ///< barriers of instructions that still read it
  };

  [[noreturn]] void fault(const std::string& what) const;
  void checkTiming(const sass::Instruction& i);
  void checkRead(Timing& timing, unsigned delay, const std::string& what);
  void checkWrite(const Timing& timing, const sass::Instruction& i, const std::string& what);
  void markTiming(const sass::Instruction& i);
  void execute(const sass::Instruction& i);
  void executeFloat(const sass::Instruction& i, std::uint32_t active);
  void executeDouble(const sass::Instruction& i, std::uint32_t active);
  void executeInteger(const sass::Instruction& i, std::uint32_t active);
  void executeMemory(const sass::Instruction& i, std::uint32_t active);
  void executeControl(const sass::Instruction& i, std::uint32_t active);
  std::uint32_t predicate(unsigned number) const;
  void writePredicate(unsigned number, std::uint32_t value, std::uint32_t active);
  float inaccurate(float x);
  float number(const sass::Instruction& i, unsigned slot, unsigned lane) const;
  double wideNumber(const sass::Instruction& i, unsigned slot, unsigned lane) const;
  std::uint32_t bits(unsigned r, unsigned lane) const { return r == sass::kZero ? 0 : registers_[r][lane]; }
  std::uint64_t wideBits(unsigned r, unsigned lane) const;
  void write(unsigned r, unsigned lane, std::uint32_t value);
  std::uint32_t constant(std::uint32_t offset) const;

  std::span<const sass::Instruction> code_;
  std::span<const std::byte> bank_;
  SassMemory& memory_;
  unsigned register_count_, architecture_;

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
