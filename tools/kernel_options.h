// What the commands that show kernels have in common: the kernel, its expressions, and its target.
#pragma once

#include <CLI/CLI.hpp>

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "compiler/interpreter/handler_table.h"
#include "compiler/lowering/code_weights.h"
#include "compiler/nvptx/options.h"
#include "compiler/target/architecture.h"
#include "passes/dag.h"
#include "runtime/engine.h"
#include "tools/files/output.h"
#include "tools/options.h"

namespace srjit {

/// Which of a GPU's kernels is shown.
enum class ShownKernel { kValues, kLoss, kInterpreter };

/// The code that is shown: one graph of all expressions as it stands, kernels of bounded length, or programs that the
/// processor interprets.
enum class KernelCode { kOneGraph, kDevice, kHost, kHostProgram };

struct KernelOptions {
  ExpressionOptions expressions;
  Math math = Math::kPrecise;
  Precision precision = Precision::kF32;
  std::string columns;
  std::string passes = "standard";
  bool simplify = true;                  ///< false: graphs of expressions as they are written, without passes
  std::size_t longest = kMaxCodeLength;  ///< the longest expression that gets a kernel
  // Of GPU kernels only
  ShownKernel kind = ShownKernel::kValues;
  std::string arch = std::string(architectureOf(kDefaultArchitecture).name);
  unsigned rows_per_thread = 0;  ///< 0: 4, or 8 for the interpreter
  unsigned depth = kInterpreterDepth;
  LossKind loss = LossKind::kMse;
  NanPolicy nan = NanPolicy::kPropagate;
  bool weighted = false, loss_given = false;
  std::string listing;  ///< the file of --listing; empty: none

  DeviceOptions device() const;
};

/// Expressions, passes, precision and math mode; and for commands that show code, --simplify.
void addGraphOptions(CLI::App& app, KernelOptions& options);
void addCodeOptions(CLI::App& app, KernelOptions& options);

/// --kernel, --arch and all else that a GPU kernel depends on.
void addDeviceOptions(CLI::App& app, KernelOptions& options);

/// Adds --depth; --max-length, which counts in `unit`; --listing, for commands that make code with NVIDIA's tools.
CLI::Option* addDepthOption(CLI::App& app, KernelOptions& options);
void addLengthOption(CLI::App& app, KernelOptions& options, const std::string& unit);
void addListingOption(CLI::App& app, KernelOptions& options);

/// Throws CLI::ValidationError for an option that was given to `app`, which has those of addDeviceOptions(),
/// addLengthOption() and perhaps addListingOption(), and has no effect on the kernel that `options` and `tier` name;
/// also for an architecture that `tier` has not, unless LLVM writes PTX for it: the direct tier refuses that
/// with a reason. `tier` is kCompile or kDirect.
void checkDeviceOptions(const CLI::App& app, const KernelOptions& options, Tier tier);

/// Throws CLI::ValidationError for an architecture that LLVM does not write PTX for.
void checkPtxArchitecture(const std::string& arch);

/// What kernels are made of: the good expressions, in order, as an engine would divide them, after the passes. Bad ones
/// were reported, and so were those that are too long. kernelInput() throws ErrorException for bad options.
struct KernelInput {
  std::vector<SourceLine> lines;
  std::vector<Dag> graphs;  ///< one for each kernel; none if no expression is good
  /// The places in `lines` of the first and last expression of each kernel.
  std::vector<std::pair<std::size_t, std::size_t>> expressions;

  /// "expressions 1 to 26", for kernel `index`.
  std::string describe(std::size_t index) const;
  /// If there are several kernels, a line for each that begins with `mark` and tells its expressions.
  std::string comment(std::string_view mark) const;
};
KernelInput kernelInput(const KernelOptions& options, KernelCode code);

/// The interpreter for the operators of `graph`.
HandlerTable interpreterFor(const Dag& graph, const KernelOptions& options);

/// Prints the text of kernels that `make` gives. It is called if at least one expression is good; it may make errors of
/// lines and report them, and throws ErrorException where there is no text.
template <class Make>
ExitStatus showKernel(const KernelOptions& options, KernelCode code, const Make& make) {
  KernelInput input = kernelInput(options, code);
  if (input.graphs.empty()) return batchStatus(input.lines, options.expressions);
  OutputFile::create("-").value();  // before the work, so that a closed standard output costs none
  const std::string text = make(input);
  return std::max(writeResults(text), batchStatus(input.lines, options.expressions));
}

}  // namespace srjit
