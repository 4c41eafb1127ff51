// One LLVM module for a GPU, from its first instruction to PTX.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Module.h>
#include <llvm/Target/TargetMachine.h>

#include "compiler/nvptx/options.h"
#include "ir/error.h"
#include "passes/llvm_passes.h"

namespace srjit {

/// Owns a context, so that modules may be made in parallel. Not itself thread-safe.
class DeviceModule {
 public:
  /// Errors: kInvalid for an unknown architecture or rows_per_thread.
  static Result<DeviceModule> create(const DeviceOptions& options);

  llvm::Module& module() { return *module_; }

  /// A kernel with these parameters and kBlockThreads threads a block, of which the assembler is to let a
  /// multiprocessor hold `min_blocks`; the builder stands in its empty entry block.
  llvm::Function* addKernel(llvm::StringRef name, llvm::ArrayRef<llvm::Type*> parameters, llvm::IRBuilder<>& builder,
                            unsigned min_blocks = 1);

  /// Verifies the module, links libdevice into it, and optimises it.
  Status finish(const LlvmPasses& passes = {});

  std::string ir() const;
  Result<std::string> ptx();

 private:
  DeviceModule() = default;
  std::unique_ptr<llvm::LLVMContext> context_;
  std::unique_ptr<llvm::TargetMachine> target_;
  std::unique_ptr<llvm::Module> module_;
};

/// The text of what `build` makes, or why it makes none. PTX is always optimised. All there is of a module, from its
/// making to its end, happens in these calls.
using BuildModule = std::function<Result<DeviceModule>()>;
Result<std::string> irOf(const BuildModule& build, bool optimized);
Result<std::string> ptxOf(const BuildModule& build, const LlvmPasses& passes = {});

/// Pointer to global memory.
inline llvm::Type* globalPointer(llvm::LLVMContext& context) { return llvm::PointerType::get(context, 1); }

}  // namespace srjit
