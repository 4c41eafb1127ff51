// Programs on several devices.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "runtime/engine_options.h"
#include "runtime/evaluation/program_state.h"
#include "runtime/pool/devices.h"

namespace srjit {

struct PoolShare;
using PoolShares = std::vector<std::shared_ptr<PoolShare>>;

/// What is compiled: expressions of a program, and how. The numbers are those of its first expression, output and
/// parameter in the whole program.
struct PoolOrder {
  std::shared_ptr<const ProgramSource> source;
  std::size_t expression = 0, output = 0, parameter = 0;
  Tier tier = Tier::kAuto;
  CompileOptions options = {};  ///< without data
};

/// Adjacent expressions of a program, as a program of one device. Only `others` and `elsewhere` change.
struct PoolShare {
  std::size_t device = 0;
  PoolOrder order;
  std::optional<Program> program;  ///< nothing if the device could not make it at first, for this reason:
  std::optional<Error> error = {};
  std::vector<std::size_t> tried;  ///< the device, and those that could not do more than this share before

  std::timed_mutex mutex;
  /// The same expressions for other devices, made when this one cannot evaluate them; guarded by the mutex.
  std::optional<PoolShares> others;
  /// The same expressions as a program of each other device, of which each has some of the rows; of its own, if that
  /// made it later.
  ProgramsMade<std::size_t> elsewhere;
};

/// What a device has of data; null if it has not all rows.
inline std::shared_ptr<const Dataset::State> replicaOn(const Dataset::State& data, std::size_t device) {
  return device < data.replicas.size() ? data.replicas[device] : nullptr;
}

/// The program of a pool: shares of all expressions, in order, none of them empty. Thread-safe.
class PoolProgram {
 public:
  explicit PoolProgram(PoolShares shares) : shares_(std::move(shares)) {}
  const PoolShares& shares() const noexcept { return shares_; }
  /// What Program::status() says, of all devices together: the slowest tier, and times of the device that took longest.
  ProgramStatus status() const;
  /// The same of Program::info(), as far as compiling finds it out, and the failures.
  void describe(Program::State& state) const;

 private:
  PoolShares shares_;
};

/// Makes shares. Thread-safe; works on the calling thread's arena.
class PoolCompiler {
 public:
  /// The devices must outlive it.
  explicit PoolCompiler(PoolDevices& devices) : devices_(devices) {}

  /// Divides the expressions among the devices that work, and makes their programs; with the kept subtrees of `data`,
  /// if there are any. What a device cannot make, others do. Errors: where none can, and kLimit at the deadline.
  Result<PoolShares> make(const PoolOrder& order, const Dataset* data, const Deadline& deadline) const;
  /// The same expressions for all devices that have not tried them, divided likewise; none if all have. `error` is why
  /// the share's own device cannot evaluate them. Throws an ErrorException (kLimit) if another call makes them until
  /// the deadline.
  Result<PoolShares> othersOf(PoolShare& share, const Error& error, const Deadline& deadline) const;
  /// The program of a share on its own device, which tries again to make it if it could not before: memory may be short
  /// for a moment alone. Errors: those of making it; kLimit if another call makes it until the deadline.
  Result<Program> programOf(PoolShare& share, const Deadline& deadline) const;
  /// The program of a share on a device. Throws what guarded() catches.
  Program programOn(PoolShare& share, std::size_t device, const Deadline& deadline) const;

 private:
  Result<PoolShares> makeOn(const std::vector<std::size_t>& devices, const std::vector<std::size_t>& tried,
                            const PoolOrder& order, const Dataset* data, const Deadline& deadline) const;
  PoolShares divide(const std::vector<std::size_t>& devices, const std::vector<std::size_t>& tried,
                    const PoolOrder& order) const;
  void compile(PoolShare& share, const Dataset* data, const Deadline& deadline) const;
  Program compileOn(std::size_t device, const PoolOrder& order, const Dataset* data, const Deadline& deadline) const;

  PoolDevices& devices_;
};

}  // namespace srjit
