// What a caller chooses: the device and how faithfully, where and when code is made, and which loss.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "ir/losses.h"
#include "ir/numeric.h"
#include "passes/pass.h"

namespace srjit {

/// How expressions are executed. The tiers give the same bits.
enum class Tier {
  kAuto,       ///< chosen by what is measured to be faster
  kInterpret,  ///< no compiling per expression
  kCompile,    ///< machine code per batch, by LLVM and the assembler
  kDirect,     ///< machine code of our own for what has it, in microseconds; on a CPU as kInterpret
};

/// What a loss does with rows whose prediction is NaN or infinite.
enum class NanPolicy {
  kPropagate,  ///< they count like any number
  kSkip,       ///< they are left out: sums and weights run over the valid rows; NaN if there are none
  kReject,     ///< one such row makes the loss infinite (r2: minus infinity)
};

struct LossOptions {
  LossKind kind = LossKind::kMse;
  NanPolicy nan = NanPolicy::kPropagate;
};

/// Largest EngineOptions::threads.
inline constexpr unsigned kMaxThreads = 1024;

struct EngineOptions {
  std::string device = "auto";  ///< "cpu", "cuda:N", or "auto": cuda:0 if it can be used, else the CPU
  Precision precision = Precision::kF32;
  Math math = Math::kPrecise;
  Tier tier = Tier::kAuto;
  unsigned threads = 0;  ///< at most kMaxThreads; 0, or more than the process may use: all of those
  /// Where kernels of a GPU are kept: a directory, empty for none; not given: $SRJIT_CACHE_DIR, or the user's cache.
  std::optional<std::string> cache_directory = {};
  /// Device memory for one data set and for one evaluation's working memory; what needs more goes in parts. 0: what is
  /// free.
  std::uint64_t device_bytes = 0;
  /// Device memory of each uploaded data set for values of subtrees that recur from one program to the next
  /// (CompileOptions::data), beside device_bytes; at most 32 columns are used. 0: none. The CPU keeps none.
  std::uint64_t subtree_bytes = 0;
};

class Dataset;

struct CompileOptions {
  std::optional<Tier> tier = {};          ///< overrides the engine's
  std::optional<Pipeline> pipeline = {};  ///< instead of Pipeline::standard
  /// Evaluations of the program that are expected, for Tier::kAuto. On a GPU, fewer repay machine code that is in the
  /// cache.
  double expected_evaluations = 1;
  std::size_t expected_rows = 0;  ///< on how many rows, for Tier::kAuto; 0: unknown
  /// Whether a GPU's kernels get expressions that have much in common, or neighbours as given. The bits are the same.
  bool group_by_sharing = true;
  /// The data that the program is for: it can be evaluated on no other, and reads values of subtrees that are kept
  /// there. Looked at during the call alone. Null: any data.
  const Dataset* data = nullptr;
};

}  // namespace srjit
