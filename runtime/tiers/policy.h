// Which code serves an evaluation on a GPU, and which code it pays to make: a total function of plain values. No locks,
// no device, no clock.
#pragma once

#include <cstddef>
#include <optional>

#include "runtime/code/costs.h"
#include "runtime/engine_options.h"

namespace srjit {

/// Code of a program for one kind of kernel.
enum class CodeKind {
  kInterpreted,      ///< bytecode; one for all kinds of kernels
  kDirect,           ///< machine code by the direct tier
  kCompiled,         ///< machine code by LLVM, of all expressions
  kCompiledRefused,  ///< machine code by LLVM, of the expressions that the interpreter refuses; the others interpreted
};
inline constexpr std::size_t kCodeKinds = 4;

/// State of one kind of code.
enum class CodeState {
  kOpen,     ///< may be made: no attempt was made, or it was cancelled
  kRunning,  ///< is being made
  kReady,
  kFailed,  ///< could not be made
};

/// What is known of the direct tier's self-test on a device.
enum class SelfTestState { kOpen, kPassed, kFailed };

/// Seconds that the self-test takes where its interpreter must be compiled first.
inline constexpr double kSelfTestSeconds = 2;

/// Fixed costs of a part of a population: memory, waits for copies, launches, for direct code a module, and threads
/// that idle when a part is nearly prepared. With this value random trees stay undivided and mutated formulas are
/// divided, as measurements on an H200 with 16 threads suggest (docs/history/measurements.md).
inline constexpr double kPartSeconds = 0.3e-3;
/// The largest number of parts.
inline constexpr std::size_t kMostParts = 8;

/// The work that code is made for.
struct ExpectedWork {
  double nodes = 0;         ///< tokens of all expressions
  double rows = 0;          ///< 0: unknown
  double evaluations = 0;   ///< that are expected; 0: none, as where code is only prepared
  std::size_t kernels = 0;  ///< that LLVM would make of all expressions
  unsigned threads = 1;     ///< that make code; at least 1

  double nodeRows() const noexcept { return nodes * rows; }
};

/// What a program begins with, before its data are known. kCompiled and kDirect mean the graphs that such code is made
/// of; kCompiledRefused is not among the answers.
CodeKind firstCode(Tier tier, SelfTestState self_test, const DeviceCosts& costs, const ExpectedWork& announced);

/// Seconds of preparing and evaluating such work once. Where the rows are unknown, of evaluating one row.
double secondsOf(CodeKind first, const DeviceCosts& costs, const ExpectedWork& work);

/// Into how many parts a population is best divided that is prepared for code of kind `first` and evaluated once. The
/// device evaluates a part while the next is prepared. So of the shorter of preparing and evaluating only the share of
/// one part adds to the longer; but each part has fixed costs, kPartSeconds.
std::size_t bestParts(CodeKind first, const DeviceCosts& costs, const ExpectedWork& work);

/// What is known when an evaluation begins.
struct TierFacts {
  Tier tier = Tier::kAuto;
  DeviceCosts costs = kTypicalCosts;
  ExpectedWork work = {};  ///< evaluations: this one included
  SelfTestState self_test = SelfTestState::kOpen;
  bool layout_suits_direct = true;  ///< whether direct code can address the data (directRefusal())
  bool has_direct_graphs = false;   ///< whether the program began with the graphs of direct code

  bool has_interpreted = false;      ///< whether there is bytecode
  bool interpreter_refuses = false;  ///< some expressions; known once there is bytecode
  CodeState direct = CodeState::kOpen;
  bool direct_is_complete = true;  ///< of ready direct code: no expression is refused both by it and by the interpreter
  bool direct_was_slower = false;  ///< in evaluations of this program, which both have served
  bool direct_was_tried = false;   ///< this evaluation has waited for direct code, and there is none
  CodeState compiled = CodeState::kOpen;
  CodeState compiled_refused = CodeState::kOpen;
  bool has_started = false;  ///< this evaluation has started something in the background
};

/// Outcome of an evaluation if code that it waits for cannot be made.
enum class OnFailure {
  kReturn,                   ///< it ends with the error
  kReturnUnlessUnsupported,  ///< the same, but after Errc::kUnsupported decideTier() is asked again
  kDecide,                   ///< decideTier() is asked again
};

/// What to do for one evaluation.
struct TierDecision {
  /// The code to start making in the background, before the wait. None while `wait_for` is kDirect, and none if the
  /// evaluation has started some before.
  std::optional<CodeKind> start = {};

  /// The code to wait for. After the wait decideTier() is asked again with the new state of that code, and with
  /// `has_started` if this decision starts something. Without a value, `serves` is ready.
  std::optional<CodeKind> wait_for = {};
  OnFailure on_failure = OnFailure::kReturn;
  CodeKind serves = CodeKind::kInterpreted;
};

TierDecision decideTier(const TierFacts& facts);

}  // namespace srjit
