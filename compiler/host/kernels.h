// LLVM IR of the host's kernels; jit.h says what each computes.
#pragma once

#include <string>
#include <vector>

#include <llvm/IR/Module.h>

#include "compiler/host/jit.h"
#include "compiler/lowering/source_map.h"

namespace srjit {

/// Everything that the IR of a host kernel depends on besides its operator, graph or loss.
struct HostOptions {
  Precision precision;
  Math math;
  unsigned vector_bytes;

  unsigned lanes() const { return vector_bytes / static_cast<unsigned>(bytesOf(precision)); }
};

/// Adds a HostHandler named `name` to `module`.
void emitHostHandler(llvm::Module& module, const std::string& name, const HandlerKey& key, const HostOptions& options);

/// Adds a HostKernel named `name` over all roots of `dag`, which names its `source`, if that is given.
void emitHostKernel(llvm::Module& module, const std::string& name, const Dag& dag, const HostOptions& options,
                    const SourceMap* source = nullptr);

/// Adds a HostLossKernel named `name`.
void emitHostLoss(llvm::Module& module, const std::string& name, const LossSpec& spec, const HostOptions& options);

/// The operators that the roots need, in a topological order that interleaves up to `ways` roots, one operator each in
/// turn; a root that is finished is replaced by the next. Within a root the order is ascending. An out-of-order
/// processor looks ahead by some hundreds of instructions, fewer than a chain of function calls has; interleaving puts
/// independent work into that window. Linear in the nodes and roots times `ways`; not recursive.
std::vector<NodeId> interleavedOrder(const Dag& dag, unsigned ways);

}  // namespace srjit
