// What a Program holds.
#pragma once

#include <memory>
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

struct Program::State {
  std::shared_ptr<const ProgramSource> source;
  std::string device;                        ///< of the engine that made it
  std::optional<std::uint64_t> data_serial;  ///< of the data that it is for; not set: any
  ProgramInfo info{};
  std::vector<Failure> failures;               ///< in order of expression
  std::unique_ptr<const HostBatches> batches;  ///< code for the processor, or
  std::shared_ptr<DeviceProgram> on_device;    ///< for a GPU
};

}  // namespace srjit
