// What kernels of both targets do with an LLVM module: debug locations of the nodes of a graph, and pipelines of LLVM's
// passes. The graph passes have already folded constants, eliminated common subexpressions and scheduled, so these
// pipelines are short.
#pragma once

#include <optional>
#include <string>

#include <llvm/Analysis/TargetTransformInfo.h>
#include <llvm/IR/DIBuilder.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Module.h>

#include "compiler/lowering/source_map.h"
#include "passes/dag.h"

namespace srjit {

/// Gives the instructions of one function their places. Without a map it does nothing, and the module is as it would be
/// without it. Borrows all three.
class NodeLocations {
 public:
  NodeLocations(llvm::IRBuilder<>& builder, llvm::Function& function, const SourceMap* map);
  /// Completes the module's description of its source.
  ~NodeLocations();
  NodeLocations(const NodeLocations&) = delete;
  NodeLocations& operator=(const NodeLocations&) = delete;

  /// Instructions that the builder makes from now on belong to the node.
  void set(NodeId id);
  /// It belongs to none.
  void clear();

 private:
  llvm::IRBuilder<>& builder_;
  const SourceMap* map_;
  std::optional<llvm::DIBuilder> debug_;
  llvm::DISubprogram* subprogram_ = nullptr;
};

/// The text of a module. Places are comments behind instructions; the module loses them.
std::string textWithPlaces(llvm::Module& module);

/// Eliminates common subexpressions, which only addresses have, in modules of host kernels.
void optimizeHostModule(llvm::Module& module);
/// The same in modules of device kernels; and promotes the interpreter's registers.
void optimizeDeviceModule(llvm::Module& module);
/// For modules that a C++ compiler made: LLVM's pipeline of level O2. `costs` are those of the target's instructions.
void optimizeBitcode(llvm::Module& module, const llvm::TargetIRAnalysis& costs);

}  // namespace srjit
