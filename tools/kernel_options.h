// What the commands that show kernels have in common: which kernel, of which expressions, for what.
#pragma once

#include <CLI/CLI.hpp>

#include <optional>
#include <string>
#include <vector>

#include "compiler/device.h"
#include "compiler/handler_table.h"
#include "passes/dag.h"
#include "runtime/engine.h"
#include "tools/options.h"

namespace srjit {

enum class KernelKind { kValues, kLoss, kInterpreter };

struct KernelOptions {
  ExpressionOptions expressions;
  Math math = Math::kPrecise;
  Precision precision = Precision::kF32;
  std::string columns;
  std::string passes = "standard";
  // Of GPU kernels only
  KernelKind kind = KernelKind::kValues;
  std::string arch = "sm_90";
  unsigned rows_per_thread = 0;  ///< 0: 4, or 8 for the interpreter
  unsigned depth = 5;            ///< of the interpreter's stack
  LossKind loss = LossKind::kMse;
  NanPolicy nan = NanPolicy::kPropagate;
  bool weighted = false, loss_given = false;

  DeviceOptions device() const;
};

/// Expressions, passes, precision and math mode.
void addGraphOptions(CLI::App& app, KernelOptions& options);

/// --kernel, --arch and all else that a GPU kernel depends on.
void addDeviceOptions(CLI::App& app, KernelOptions& options);

/// The graph that a kernel is made of: the good expressions after the passes. Bad ones were reported.
struct KernelInput {
  std::vector<SourceLine> lines;
  Dag graph;
};
Result<KernelInput> kernelInput(const KernelOptions& options);

/// The interpreter for the operators of `graph`.
HandlerTable interpreterFor(const Dag& graph, const KernelOptions& options);

/// Prints a kernel's text, or reports why there is none. `make` is called if at least one expression is good.
template <class Make>
ExitStatus showKernel(const KernelOptions& options, const Make& make) {
  const Result<KernelInput> input = kernelInput(options);
  if (!input) return report(input.error());
  if (input->graph.roots().empty()) return batchStatus(input->lines, options.expressions);
  const Result<std::string> text = make(input->graph);
  if (!text) return report(text.error());
  return std::max(writeResults(*text), batchStatus(input->lines, options.expressions));
}

}  // namespace srjit
