// What a Program holds.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "runtime/evaluation/program_source.h"
#include "runtime/program.h"
#include "runtime/results.h"

namespace srjit {

class DeviceProgram;
class HostBatches;

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
  std::shared_ptr<SubtreeReader> subtrees = {};  ///< that the program's graphs read; null: everything is computed
  std::string device;                            ///< of the engine that made it
  std::optional<std::uint64_t> data_serial;      ///< of the data that it is for; not set: any
  ProgramInfo info{};
  std::vector<Failure> failures;               ///< in order of expression
  bool made = true;                            ///< false: there is no code, and all expressions are failures
  std::shared_ptr<const HostBatches> batches;  ///< code for the processor, or
  std::shared_ptr<DeviceProgram> on_device;    ///< for a GPU
  mutable FeasibleParts parts;
};

struct FeasiblePart {
  Program program;
  std::vector<std::uint32_t> expressions;  ///< their numbers in the whole program, ascending
  std::vector<Failure> failures;           ///< of the others
};

}  // namespace srjit
