// Options of engines, of programs and of losses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <stop_token>
#include <string>

#include "ir/expression.h"
#include "ir/losses.h"
#include "ir/numeric.h"
#include "passes/derivatives.h"
#include "passes/pass.h"

namespace srjit {

/// How expressions are executed. The tiers give the same bits.
enum class Tier {
  kAuto,       ///< the tier that measurements predict to be faster
  kInterpret,  ///< no compilation per expression
  kCompile,    ///< machine code per batch, by LLVM and the assembler
  kDirect,     ///< machine code encoded without LLVM and the assembler, in microseconds, where supported; on a CPU as
               ///< kInterpret
};
/// All, in the order of the enumerators.
inline constexpr Tier kTiers[] = {Tier::kAuto, Tier::kInterpret, Tier::kCompile, Tier::kDirect};
/// The word of the command's --tier and of the bindings.
constexpr const char* nameOf(Tier tier) {
  switch (tier) {
    case Tier::kAuto:
      return "auto";
    case Tier::kInterpret:
      return "interpret";
    case Tier::kCompile:
      return "compile";
    case Tier::kDirect:
      return "direct";
  }
  __builtin_unreachable();
}

/// The effect on a loss of rows whose prediction is NaN or infinite.
enum class NanPolicy {
  kPropagate,  ///< the loss becomes NaN or infinite with them
  kSkip,       ///< sums of terms and weights run over the valid rows only; NaN if there are none
  kReject,     ///< one such row makes the loss infinite (r2: minus infinity)
};
/// All, in the order of the enumerators.
inline constexpr NanPolicy kNanPolicies[] = {NanPolicy::kPropagate, NanPolicy::kSkip, NanPolicy::kReject};
/// The word of the command's --nan and of the bindings.
constexpr const char* nameOf(NanPolicy policy) {
  switch (policy) {
    case NanPolicy::kPropagate:
      return "propagate";
    case NanPolicy::kSkip:
      return "skip";
    case NanPolicy::kReject:
      return "reject";
  }
  __builtin_unreachable();
}

struct LossOptions {
  LossKind kind = LossKind::kMse;
  NanPolicy nan = NanPolicy::kPropagate;
  /// The constant c of kHuber (above 0; 1 if not set) and of kQuantile (between 0 and 1; 0.5 if not set). Other losses
  /// have none.
  std::optional<double> tuning = {};
  /// Instead of `kind`: the weighted mean of this over rows, where x0 is the prediction, x1 the target and x2 the
  /// weight (1 without weights). It has no other variables, and no parameters. Rows where it is NaN or infinite count
  /// as rows whose prediction is. parse(text, Language::kInfix, {"f", "y", "w"}) reads it from text such as "abs(f -
  /// y)^1.5".
  std::optional<Expression> custom = {};
};

/// Of Engine::gradient().
struct GradientOptions {
  LossOptions loss = {};
  DerivativesBy by = DerivativesBy::kParameters;
};

/// Bounds of a call, for input from elsewhere; 0 sets no bound. A call beyond one gives an error of kLimit that
/// names the limit, the number found, and how to allow it (Engine).
struct Limits {
  std::size_t max_nodes = 0;       ///< tokens of one expression
  std::size_t max_call_nodes = 0;  ///< tokens, or derivatives, of all expressions of a call
  double max_seconds = 0;          ///< wall time of a call
  /// Ends calls as the end of max_seconds does, from the time when it is requested.
  std::stop_token stop = {};
};

/// Largest EngineOptions::threads.
inline constexpr unsigned kMaxThreads = 1024;

struct EngineOptions {
  /// "cpu", "cuda:N", or "auto": cuda:0 if usable, else the CPU. Several GPUs as one: "cuda:0,2", or "cuda:all" for all
  /// that are usable; expressions are divided among them. Each has all data; data that are too large for its memory
  /// are streamed.
  std::string device = "auto";
  Precision precision = Precision::kF32;
  Math math = Math::kPrecise;
  Tier tier = Tier::kAuto;
  unsigned threads = 0;  ///< at most kMaxThreads; 0, or more than the process may use: all that it may use
  /// Directory of the disk cache of kernels; empty: no disk cache; not set: $SRJIT_CACHE_DIR, or the user's cache
  /// directory.
  std::optional<std::string> cache_directory = {};
  /// Device memory for one data set and for one evaluation's working memory, on each device; larger work is divided
  /// into parts. 0: all that is free.
  std::uint64_t device_bytes = 0;
  /// Device memory per uploaded data set, in addition to device_bytes, for values of subtrees that recur from one
  /// program to the next (CompileOptions::data); at most 32 columns are used. 0: none. The CPU keeps none.
  std::uint64_t subtree_bytes = 0;
  Limits limits = {};  ///< of each call
};

class Dataset;

struct CompileOptions {
  std::optional<Tier> tier = {};          ///< overrides the engine's
  std::optional<Pipeline> pipeline = {};  ///< instead of Pipeline::standard
  /// False: expressions are evaluated as they are written, but for constants that are folded and multiply-adds
  /// (passes/tree.h), which spares most of the time that preparing them takes. Right for expressions that are evaluated
  /// once. The bits depend on this choice, except in Math::kStrict, and are then the same in every tier, batch and
  /// device. A pipeline replaces both.
  bool simplify = true;
  /// Expected number of evaluations of the program, for Tier::kAuto. On a GPU, code found in the cache is used from
  /// fewer evaluations on.
  double expected_evaluations = 1;
  std::size_t expected_rows = 0;  ///< rows per evaluation, for Tier::kAuto; 0: unknown
  /// Whether a GPU kernel gets expressions that share subtrees, or adjacent ones in the given order. The bits are the
  /// same.
  bool group_by_sharing = true;
  /// Restricts the program to one data set, whose kept subtree values it then reads. Borrowed during the call. Null:
  /// any data.
  const Dataset* data = nullptr;
  /// Whether the code of the expressions' values is made at their first evaluation instead of at once: for programs
  /// that are fitted or differentiated, since their derivatives have code of their own. The numbers are the same.
  /// Program::failures() then has only the expressions that are not valid, and info() no nodes after the passes;
  /// evaluations give all failures, and status() is empty before the first. Where memory or the device fails while code
  /// is made, that is the error of the evaluation. No effect with `data`.
  bool deferred = false;
};

}  // namespace srjit
