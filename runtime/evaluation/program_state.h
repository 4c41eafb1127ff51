// The state of a Program.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "runtime/evaluation/program_source.h"
#include "runtime/platform/deadline.h"
#include "runtime/program.h"
#include "runtime/results.h"

namespace srjit {

class DeviceProgram;
class HostBatches;
class PoolProgram;

struct FeasiblePart;

/// The parts of a program that data with too few columns for the whole program can evaluate, by number of columns; made
/// at first use. Thread-safe; a call may wait while another makes a part, until its deadline (lockUntil()).
class FeasibleParts {
 public:
  template <class Make>
  std::shared_ptr<const FeasiblePart> get(std::size_t columns, const Deadline& deadline, const Make& make) {
    const auto lock = lockUntil(deadline, mutex_);
    auto& part = parts_[columns];
    if (part == nullptr) part = make();
    return part;
  }

 private:
  std::timed_mutex mutex_;
  std::map<std::size_t, std::shared_ptr<const FeasiblePart>> parts_;
};

/// Programs that are made of a program, by what they are for: each at its first use, and kept unless the machine
/// failed. The most recently used are kept. Thread-safe; a call may wait while another makes its program, until its
/// deadline (lockUntil()).
template <class Purpose>
class ProgramsMade {
 public:
  template <class Make>
  Program get(const Purpose& purpose, const Deadline& deadline, const Make& make) {
    const auto lock = lockUntil(deadline, mutex_);
    const auto found = std::ranges::find(programs_, purpose, &Entry::first);
    if (found != programs_.end()) {
      std::rotate(found, found + 1, programs_.end());
      return programs_.back().second;
    }
    Program made = make();
    const bool has_failed = std::ranges::any_of(
        made.failures(), [](const Failure& failure) { return failure.error.code == Errc::kMachine; });
    if (has_failed) return made;
    if (programs_.size() == kMost) programs_.erase(programs_.begin());
    programs_.emplace_back(purpose, made);
    return made;
  }

  /// What get() keeps for this purpose; nothing while another call makes a program.
  std::optional<Program> find(const Purpose& purpose) const {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock) return {};
    const auto found = std::ranges::find(programs_, purpose, &Entry::first);
    return found == programs_.end() ? std::nullopt : std::optional(found->second);
  }

 private:
  using Entry = std::pair<Purpose, Program>;
  static constexpr std::size_t kMost = 8;

  mutable std::timed_mutex mutex_;
  std::vector<Entry> programs_;  ///< the least recently used first
};

struct Program::State {
  std::shared_ptr<const ProgramSource> source;
  std::string device;                        ///< device of the engine that made it
  std::optional<std::uint64_t> data_serial;  ///< serial of the one data set it may be evaluated on; not set: any
  ProgramInfo info{};
  std::vector<Failure> failures;                ///< in order of expression
  bool made = true;                             ///< false: no code exists, and all expressions are failures
  std::optional<CompileOptions> deferred = {};  ///< how code is made at the first evaluation; not set: it exists
  std::shared_ptr<const HostBatches> batches;   ///< code for the processor, or
  std::shared_ptr<DeviceProgram> on_device;     ///< code for a GPU, or
  std::shared_ptr<PoolProgram> on_pool;         ///< programs for several
  mutable FeasibleParts parts;
  mutable ProgramsMade<Derivation> derived;
  mutable ProgramsMade<std::monostate> code;  ///< of a deferred program: the same with code, once it was needed
  /// Of sums of a scaled loss: of those expressions, conditioned (runtime/derived_tasks.cpp).
  mutable ProgramsMade<std::vector<std::uint32_t>> conditioned;
  /// By a number of parameter vectors: so many times all expressions, behind one another.
  mutable ProgramsMade<std::size_t> repeated;
};

struct FeasiblePart {
  Program program;
  std::vector<std::uint32_t> expressions;  ///< their numbers in the whole program, ascending
};

}  // namespace srjit
