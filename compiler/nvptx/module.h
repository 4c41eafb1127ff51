// One LLVM module for a GPU, from its first instruction to PTX.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Module.h>
#include <llvm/Target/TargetMachine.h>

#include "compiler/nvptx/options.h"
#include "ir/error.h"

namespace srjit {

/// Owns its LLVMContext, so several modules may be made in parallel. Not itself thread-safe.
class DeviceModule {
 public:
  /// Errors: kInvalid for an unknown architecture or rows_per_thread.
  static Result<DeviceModule> create(const DeviceOptions& options);

  llvm::Module& module() { return *module_; }

  /// A kernel with these parameters and kBlockThreads threads per block. The assembler limits registers so that a
  /// multiprocessor holds `min_blocks` blocks. The builder is then at the end of the empty entry block.
  llvm::Function* addKernel(llvm::StringRef name, llvm::ArrayRef<llvm::Type*> parameters, llvm::IRBuilder<>& builder,
                            unsigned min_blocks = 1);

  /// Replaces the module by that of `bitcode`, of this target. Only `kernels` are visible from outside. finish()
  /// optimises it as code of a C++ compiler. Errors: kCompile for bytes that are no such bitcode.
  Status readBitcode(std::string_view bitcode, std::span<const std::string_view> kernels);

  /// The assembler gives a thread of this kernel, which is in the bitcode, at most so many registers.
  void limitRegisters(llvm::StringRef kernel, unsigned most);

  /// Verifies the module and optimises it.
  Status finish();

  /// As textWithPlaces().
  std::string ir();
  Result<std::string> ptx();

 private:
  DeviceModule() = default;
  void annotate(llvm::Function& kernel, llvm::StringRef property, unsigned value);

  std::unique_ptr<llvm::LLVMContext> context_;
  std::unique_ptr<llvm::TargetMachine> target_;
  std::unique_ptr<llvm::Module> module_;
  bool is_bitcode_ = false;  ///< of readBitcode(); otherwise its kernels were added
};

/// The text of the module that `build` makes, or its error. PTX is always optimised. A module lives within one of these
/// calls, under its LlvmScope.
using BuildModule = std::function<Result<DeviceModule>()>;
Result<std::string> irOf(const BuildModule& build, bool optimized);
Result<std::string> ptxOf(const BuildModule& build);

/// Pointer to global memory.
inline llvm::Type* globalPointer(llvm::LLVMContext& context) { return llvm::PointerType::get(context, 1); }

}  // namespace srjit
