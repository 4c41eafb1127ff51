// PTX of a module that names its source.
#pragma once

#include <llvm/IR/LegacyPassManager.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/Target/TargetMachine.h>

namespace srjit {

/// As TargetMachine::addPassesToEmitFile() for assembly, which gives the same instructions; but these keep their places
/// where LLVM moves them into another block, which forgets them since a debugger would seem to jump. True where the
/// target cannot print assembly.
bool addPassesToEmitWithPlaces(llvm::TargetMachine& target, llvm::legacy::PassManager& passes,
                               llvm::raw_pwrite_stream& out);

}  // namespace srjit
