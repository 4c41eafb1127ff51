// The state of a Program.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "runtime/evaluation/program_source.h"
#include "runtime/platform/deadline.h"
#include "runtime/program.h"
#include "runtime/results.h"

namespace srjit {

/// The code of a program for one kind of machine. The executor that made the code knows its class. Thread-safe.
class ProgramCode {
 public:
  virtual ~ProgramCode() = default;
  /// Program::status().
  virtual ProgramStatus status() const = 0;
};

/// Why a program is made of another one: for the code of a deferred one; for a derivation of its expressions; for some
/// of its expressions; for all of them, this number of times behind one another.
using Purpose = std::variant<std::monostate, Derivation, std::vector<std::uint32_t>, std::size_t>;

/// Programs that are made of a program, by purpose: each at its first use. Keeps the code of a deferred program and the
/// most recently used others, and none whose making failed for want of a machine. Thread-safe; a call may wait while
/// another makes its program, until its deadline (lockUntil()).
class ProgramsMade {
 public:
  Program get(const Purpose& purpose, const Deadline& deadline, const std::function<Program()>& make);
  /// What get() keeps for this purpose; nothing while another call makes it.
  std::optional<Program> find(const Purpose& purpose) const;

 private:
  struct Slot;
  std::shared_ptr<Slot> slotOf(const Purpose& purpose);

  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<Slot>> slots_;  ///< the least recently used first
};

struct Program::State {
  std::shared_ptr<const ProgramSource> source;
  std::string device;                        ///< device of the engine that made it
  std::optional<std::uint64_t> data_serial;  ///< serial of the one data set it may be evaluated on; not set: any
  ProgramInfo info{};
  std::vector<Failure> failures;                ///< in order of expression
  bool made = true;                             ///< false: no code exists, and all expressions are failures
  std::optional<CompileOptions> deferred = {};  ///< how code is made at the first evaluation; not set: it exists
  std::shared_ptr<ProgramCode> code;            ///< null if there is none
  mutable ProgramsMade variants;
};

}  // namespace srjit
