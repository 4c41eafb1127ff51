// LLVM's debug locations of the nodes of a graph.
#pragma once

#include <optional>
#include <string>

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

}  // namespace srjit
