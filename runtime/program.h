// What a Program holds.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/engine.h"
#include "runtime/host_batches.h"

namespace srjit {

class DeviceProgram;
class ProgramSubtrees;

/// What code is made from. Immutable once a program has it; background work may keep it longer than the program lives.
struct ProgramSource {
  Precision precision = Precision::kF32;  ///< the engine's
  Math math = Math::kPrecise;
  Pipeline pipeline;
  std::vector<Expression> expressions;
  std::vector<std::size_t> parameter_offsets{0};   ///< one more than expressions
  std::uint32_t variables = 0;                     ///< the largest Expression::variableCount()
  std::size_t tokens = 0;                          ///< of all expressions
  bool group_by_sharing = true;                    ///< CompileOptions'
  std::shared_ptr<ProgramSubtrees> subtrees = {};  ///< that its graphs may read; null if none are kept for it

  void add(const Expression& expression);
  /// In parallel on the calling thread's arena.
  void add(std::span<const Expression> more);
};

struct FeasiblePart;

/// The parts of a program that data with too few columns for all of it can evaluate, by the number of columns; made at
/// first need. Thread-safe.
class FeasibleParts {
 public:
  template <class Make>
  std::shared_ptr<const FeasiblePart> get(std::size_t columns, const Make& make) {
    const std::lock_guard lock(mutex_);
    auto& part = parts_[columns];
    if (part == nullptr) part = make();
    return part;
  }

 private:
  std::mutex mutex_;
  std::map<std::size_t, std::shared_ptr<const FeasiblePart>> parts_;
};

struct Program::State {
  std::shared_ptr<const ProgramSource> source;
  std::string device;                        ///< of the engine that made it
  std::optional<std::uint64_t> data_serial;  ///< of the data that it is for; not set: any
  ProgramInfo info{};
  std::vector<Failure> failures;               ///< in order of expression
  bool made = true;                            ///< false: there is no code, and all expressions are failures
  std::unique_ptr<const HostBatches> batches;  ///< code for the processor, or
  std::shared_ptr<DeviceProgram> on_device;    ///< for a GPU
  mutable FeasibleParts parts;
};

struct FeasiblePart {
  Program program;
  std::vector<std::uint32_t> expressions;  ///< their numbers in the whole program, ascending
  std::vector<Failure> failures;           ///< of the others
};

}  // namespace srjit
