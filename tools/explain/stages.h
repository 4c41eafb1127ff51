// The stages of an explanation that are code.
#pragma once

#include <string>

#include "ir/error.h"
#include "tools/explain/graphs.h"
#include "tools/explain/request.h"

namespace srjit::explain {

/// LLVM IR and PTX of a GPU's kernel of predictions, of four rows per thread; LLVM IR and assembly of the processor's.
/// Their nodes are known by the places that the code names (compiler/lowering/source_map.h): those of node i are line
/// i + 1. The lines of a function that is called have the nodes of its calls.
Result<Stage> llvmIrStage(const Request& request, const FinalGraph& graph);
Result<Stage> ptxStage(const Request& request, const FinalGraph& graph);
Result<Stage> hostIrStage(const Request& request, const FinalGraph& graph);
Result<Stage> assemblyStage(const Request& request, const FinalGraph& graph);

/// Programs of the interpreters of a GPU and of the processor. The nodes of a token are found by running the program
/// over nodes instead of numbers: the operator that it computes and leaves that it reads.
Result<Stage> bytecodeStage(const Request& request, const FinalGraph& graph);
Result<Stage> hostProgramStage(const FinalGraph& graph);

/// Machine code of the direct tier, decoded. Its nodes are those of DirectTrace.
Result<Stage> directStage(const Request& request, const FinalGraph& graph);

}  // namespace srjit::explain
