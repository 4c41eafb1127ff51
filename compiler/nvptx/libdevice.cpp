#include "compiler/nvptx/libdevice.h"

#include <map>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include <fmt/format.h>
#include <llvm/Bitcode/BitcodeReader.h>
#include <llvm/Bitcode/BitcodeWriter.h>
#include <llvm/IR/Constants.h>
#include <llvm/IR/Instructions.h>
#include <llvm/Linker/Linker.h>
#include <llvm/Support/MemoryBuffer.h>
#include <llvm/Support/raw_ostream.h>

#include "compiler/nvptx/toolkit.h"
#include "passes/llvm_pipeline.h"

namespace srjit {
namespace {

// What libdevice asks of its user (libdevice User's Guide, "Reflection"; __CUDA_PREC_SQRT as nvcc's -prec-sqrt=true).
int reflected(llvm::StringRef question, unsigned arch) {
  if (question == "__CUDA_PREC_SQRT" || question == "__CUDA_PREC_DIV") return 1;
  if (question == "__CUDA_ARCH") return static_cast<int>(arch * 10);
  return 0;  // __CUDA_FTZ: subnormals are kept
}

void resolveReflection(llvm::Module& module, unsigned arch) {
  llvm::Function* const reflect = module.getFunction("__nvvm_reflect");
  if (reflect == nullptr) return;
  std::vector<llvm::CallInst*> calls;
  for (llvm::User* const user : reflect->users()) calls.push_back(llvm::cast<llvm::CallInst>(user));
  for (llvm::CallInst* const call : calls) {
    const auto* const name = llvm::cast<llvm::GlobalVariable>(call->getArgOperand(0)->stripPointerCasts());
    const auto text = llvm::cast<llvm::ConstantDataSequential>(name->getInitializer())->getAsCString();
    call->replaceAllUsesWith(
        llvm::ConstantInt::get(call->getType(), static_cast<std::uint64_t>(reflected(text, arch))));
    call->eraseFromParent();
  }
  reflect->eraseFromParent();
}

/// libdevice's file and the functions extracted from it so far, as bitcode.
class Library {
 public:
  static Library& instance() {
    static Library library;
    return library;
  }

  // The bitcode of one function and all it calls, ready to link into a module for `target`.
  Result<std::string> function(const std::string& name, llvm::TargetMachine& target, const LlvmPasses& passes) {
    const std::lock_guard lock(mutex_);
    if (Status read = readFile(name); !read) return std::move(read).error();
    const unsigned arch = archOf(target);
    auto& bitcode = functions_[{name, arch, passes.library, passes.library_loops}];
    if (bitcode.empty()) {
      auto extracted = extract(name, arch, target, passes);
      if (!extracted) return extracted;
      bitcode = std::move(*extracted);
    }
    return bitcode;
  }

 private:
  static unsigned archOf(const llvm::TargetMachine& target) {
    unsigned arch = 0;
    target.getTargetCPU().drop_front(3).getAsInteger(10, arch);
    return arch;
  }

  Status readFile(const std::string& needed) {
    if (file_) return okStatus();
    const std::string& path = findToolkit().libdevice;
    if (path.empty()) {
      return Error{
          Errc::kMachine,
          fmt::format("{} needs NVIDIA's libdevice.10.bc, which was not found: install the CUDA toolkit or set "
                      "CUDA_HOME ('sr-jit doctor' shows where it is looked for)",
                      needed),
          {}};
    }
    auto file = llvm::MemoryBuffer::getFile(path);
    if (!file) return Error{Errc::kMachine, fmt::format("cannot read {}: {}", path, file.getError().message()), {}};
    file_ = std::move(*file);
    return okStatus();
  }

  Result<std::string> extract(const std::string& name, unsigned arch, llvm::TargetMachine& target,
                              const LlvmPasses& passes) {
    llvm::LLVMContext context;
    auto library = llvm::getLazyBitcodeModule(*file_, context);
    if (!library) {
      return Error{
          Errc::kMachine,
          fmt::format("{} is not LLVM bitcode: {}", findToolkit().libdevice, llvm::toString(library.takeError())),
          {}};
    }
    const llvm::Function* const wanted = (*library)->getFunction(name);
    if (wanted == nullptr) {
      return Error{Errc::kMachine, fmt::format("{} has no function {}", findToolkit().libdevice, name), {}};
    }
    llvm::Module module(name, context);
    module.setDataLayout(target.createDataLayout());
    module.setTargetTriple(target.getTargetTriple().str());
    (*library)->setDataLayout(module.getDataLayout());
    (*library)->setTargetTriple(module.getTargetTriple());
    module.getOrInsertFunction(name, wanted->getFunctionType());
    if (llvm::Linker::linkModules(module, std::move(*library), llvm::Linker::LinkOnlyNeeded)) {
      return Error{Errc::kCompile, "cannot link " + name, {}};
    }
    resolveReflection(module, arch);
    for (llvm::Function& function : module) {
      if (function.isDeclaration()) continue;
      function.setAttributes({});
      function.setDoesNotThrow();
      function.addFnAttr(llvm::Attribute::AlwaysInline);
      function.setLinkage(llvm::GlobalValue::InternalLinkage);
    }
    module.getFunction(name)->setLinkage(llvm::GlobalValue::ExternalLinkage);
    if (Status optimized = optimizeLibraryModule(module, passes); !optimized) return std::move(optimized).error();
    std::string bitcode;
    llvm::raw_string_ostream stream(bitcode);
    llvm::WriteBitcodeToFile(module, stream);
    return bitcode;
  }

  std::mutex mutex_;
  std::unique_ptr<llvm::MemoryBuffer> file_;
  /// By name, architecture and passes.
  std::map<std::tuple<std::string, unsigned, std::string, std::string>, std::string> functions_;
};

}  // namespace

Status linkLibdevice(llvm::Module& module, llvm::TargetMachine& target, const LlvmPasses& passes) {
  std::vector<std::string> needed;
  for (const llvm::Function& function : module) {
    if (function.isDeclaration() && function.getName().starts_with("__nv_")) needed.push_back(function.getName().str());
  }
  for (const std::string& name : needed) {
    const auto bitcode = Library::instance().function(name, target, passes);
    if (!bitcode) return bitcode.error();
    auto parsed = llvm::parseBitcodeFile(llvm::MemoryBufferRef(*bitcode, name), module.getContext());
    if (!parsed) return Error{Errc::kCompile, "cannot read " + name + ": " + llvm::toString(parsed.takeError()), {}};
    if (llvm::Linker::linkModules(module, std::move(*parsed))) return Error{Errc::kCompile, "cannot link " + name, {}};
    module.getFunction(name)->setLinkage(llvm::GlobalValue::InternalLinkage);
  }
  return okStatus();
}

}  // namespace srjit
