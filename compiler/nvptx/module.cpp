#include "compiler/nvptx/module.h"

#include <algorithm>
#include <memory>
#include <vector>

#include <fmt/format.h>
#include <llvm/ADT/DenseMap.h>
#include <llvm/Bitcode/BitcodeReader.h>
#include <llvm/CodeGen/MachineFunctionPass.h>
#include <llvm/CodeGen/MachineModuleInfo.h>
#include <llvm/CodeGen/Passes.h>
#include <llvm/CodeGen/TargetPassConfig.h>
#include <llvm/IR/InstIterator.h>
#include <llvm/IR/IntrinsicInst.h>
#include <llvm/IR/IntrinsicsNVPTX.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/Verifier.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Support/CommandLine.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/Transforms/IPO/Internalize.h>

#include "compiler/lowering/llvm_modules.h"
#include "compiler/lowering/llvm_scope.h"
#include "compiler/target/architecture.h"

namespace srjit {
namespace {

constexpr const char* kTriple = "nvptx64-nvidia-cuda";

// PTX ISA 7.8, of CUDA 11.8, is the first that knows sm_90; nothing newer is used, so that older drivers can read it.
constexpr const char* kPtxVersion = "+ptx78";

// ptxas turns rcp(rcp(v)) into v and rcp(ex2(v)), also through an abs, into ex2(-v): other bits than where the two are
// apart, as in the interpreter. Such a divisor is made opaque by a select on a predicate that is always true, but read
// from a register. It comes after LLVM's own simplifications, since it must see the code that ptxas will see.
void keepReciprocalsApart(llvm::Module& module) {
  const auto idOf = [](const llvm::Value* value) {
    const auto* const call = llvm::dyn_cast<llvm::IntrinsicInst>(value);
    return call != nullptr ? call->getIntrinsicID() : llvm::Intrinsic::not_intrinsic;
  };
  std::vector<llvm::Use*> divisors;
  for (llvm::Function& function : module) {
    for (llvm::Instruction& instruction : llvm::instructions(function)) {
      const auto id = idOf(&instruction);
      const bool reciprocal = id == llvm::Intrinsic::nvvm_rcp_approx_ftz_f;
      if (!reciprocal && id != llvm::Intrinsic::nvvm_div_approx_ftz_f) continue;
      llvm::Use& divisor = instruction.getOperandUse(reciprocal ? 0 : 1);
      const llvm::Value* made = divisor;
      if (idOf(made) == llvm::Intrinsic::fabs) made = llvm::cast<llvm::IntrinsicInst>(made)->getArgOperand(0);
      if (idOf(made) == llvm::Intrinsic::nvvm_rcp_approx_ftz_f ||
          idOf(made) == llvm::Intrinsic::nvvm_ex2_approx_ftz_f) {
        divisors.push_back(&divisor);
      }
    }
  }
  for (llvm::Use* const divisor : divisors) {
    llvm::IRBuilder<> builder(llvm::cast<llvm::Instruction>(divisor->getUser()));
    llvm::Value* const threads = builder.CreateIntrinsic(llvm::Intrinsic::nvvm_read_ptx_sreg_ntid_x, {}, {});
    llvm::Value* const always = builder.CreateICmpNE(threads, builder.getInt32(0));
    divisor->set(builder.CreateSelect(always, divisor->get(), llvm::ConstantFP::get(divisor->get()->getType(), 0)));
  }
}

const llvm::Target* nvptxTarget() {
  static const llvm::Target* const target = [] {
    LLVMInitializeNVPTXTargetInfo();
    LLVMInitializeNVPTXTarget();
    LLVMInitializeNVPTXTargetMC();
    LLVMInitializeNVPTXAsmPrinter();
    // Shared memory is addressed with 32 bits: an address is then one register, and one instruction computes it. LLVM
    // 19 has this choice only as a global option, which must be set before a TargetMachine is made.
    auto& options = llvm::cl::getRegisteredOptions();
    if (const auto found = options.find("nvptx-short-ptr"); found != options.end()) {
      static_cast<llvm::cl::opt<bool>*>(found->second)->setValue(true);
    }
    std::string ignored;
    return llvm::TargetRegistry::lookupTarget(kTriple, ignored);
  }();
  return target;
}

/// The place of an instruction. Memory of one that was deleted is used again, so the pointer does not identify an
/// instruction.
struct KeptPlace {
  unsigned opcode;
  llvm::DebugLoc place;
};

/// Those of the instructions of a function.
using KeptPlaces = llvm::DenseMap<const llvm::MachineInstr*, KeptPlace>;

/// Notes the places of all instructions, or gives them back to those that are still there.
class PlaceKeeper final : public llvm::MachineFunctionPass {
 public:
  enum class Step { kNote, kRestore };
  static char ID;

  PlaceKeeper(Step step, std::shared_ptr<KeptPlaces> places)
      : MachineFunctionPass(ID), step_(step), places_(std::move(places)) {}

  llvm::StringRef getPassName() const override { return "places of nodes"; }
  // No analysis depends on places.
  void getAnalysisUsage(llvm::AnalysisUsage& usage) const override {
    usage.setPreservesAll();
    MachineFunctionPass::getAnalysisUsage(usage);
  }
  bool runOnMachineFunction(llvm::MachineFunction& function) override {
    if (step_ == Step::kNote) places_->clear();
    for (llvm::MachineBasicBlock& block : function) {
      for (llvm::MachineInstr& instruction : block) {
        if (step_ == Step::kNote) {
          places_->try_emplace(&instruction, KeptPlace{instruction.getOpcode(), instruction.getDebugLoc()});
        } else if (const auto found = places_->find(&instruction);
                   found != places_->end() && found->second.opcode == instruction.getOpcode()) {
          instruction.setDebugLoc(found->second.place);
        }
      }
    }
    if (step_ == Step::kRestore) places_->clear();
    return false;
  }

 private:
  Step step_;
  std::shared_ptr<KeptPlaces> places_;
};

char PlaceKeeper::ID = 0;

/// As TargetMachine::addPassesToEmitFile() for assembly, which gives the same instructions; but these keep their places
/// where LLVM moves them into another block, which forgets them since a debugger would seem to jump. True where the
/// target cannot print assembly.
bool addPassesToEmitWithPlaces(llvm::TargetMachine& target, llvm::legacy::PassManager& passes,
                               llvm::raw_pwrite_stream& out) {
  auto& machine = static_cast<llvm::LLVMTargetMachine&>(target);
  auto* const functions = new llvm::MachineModuleInfoWrapperPass(&machine);  // the pass manager owns it, as all passes
  llvm::TargetPassConfig* const config = machine.createPassConfig(passes);
  const auto places = std::make_shared<KeptPlaces>();
  config->insertPass(&llvm::MachineCSEID, new PlaceKeeper(PlaceKeeper::Step::kNote, places));
  config->insertPass(&llvm::MachineSinkingID, new PlaceKeeper(PlaceKeeper::Step::kRestore, places));
  passes.add(config);
  passes.add(functions);
  if (config->addISelPasses()) return true;
  config->addMachinePasses();
  config->setInitialized();
  if (machine.addAsmPrinter(passes, out, nullptr, llvm::CodeGenFileType::AssemblyFile,
                            functions->getMMI().getContext())) {
    return true;
  }
  passes.add(llvm::createFreeMachineFunctionPass());
  return false;
}

}  // namespace

Result<DeviceModule> DeviceModule::create(const DeviceOptions& options) {
  const auto known = ptxArchitectures();
  if (std::ranges::find(known, options.arch) == known.end()) {
    return Error{Errc::kInvalid,
                 fmt::format("unknown architecture '{}': expected one of {}", options.arch, fmt::join(known, ", ")),
                 {}};
  }
  if (options.rows_per_thread != 4 && options.rows_per_thread != 8 && options.rows_per_thread != 16) {
    return Error{Errc::kInvalid, fmt::format("{} rows per thread: expected 4, 8 or 16", options.rows_per_thread), {}};
  }
  const llvm::Target* const target = nvptxTarget();
  if (target == nullptr) return Error{Errc::kUnsupported, "this build's LLVM has no NVPTX target", {}};
  llvm::TargetOptions target_options;
  target_options.AllowFPOpFusion = llvm::FPOpFusion::Strict;
  DeviceModule made;
  made.target_.reset(target->createTargetMachine(kTriple, options.arch, kPtxVersion, target_options, std::nullopt,
                                                 std::nullopt, llvm::CodeGenOptLevel::Default));
  made.context_ = std::make_unique<llvm::LLVMContext>();
  made.module_ = std::make_unique<llvm::Module>("srjit", *made.context_);
  made.module_->setTargetTriple(kTriple);
  made.module_->setDataLayout(made.target_->createDataLayout());
  return made;
}

llvm::Function* DeviceModule::addKernel(llvm::StringRef name, llvm::ArrayRef<llvm::Type*> parameters,
                                        llvm::IRBuilder<>& builder, unsigned min_blocks) {
  llvm::LLVMContext& context = *context_;
  auto* const type = llvm::FunctionType::get(llvm::Type::getVoidTy(context), parameters, false);
  auto* const kernel = llvm::Function::Create(type, llvm::Function::ExternalLinkage, name, *module_);
  kernel->setCallingConv(llvm::CallingConv::PTX_Kernel);
  kernel->setDoesNotThrow();
  annotate(*kernel, "kernel", 1);
  annotate(*kernel, "maxntidx", kBlockThreads);
  // Without it, ptxas spills a few registers to fit one more block on a multiprocessor.
  annotate(*kernel, "minctasm", min_blocks);
  builder.SetInsertPoint(llvm::BasicBlock::Create(context, "entry", kernel));
  return kernel;
}

void DeviceModule::annotate(llvm::Function& kernel, llvm::StringRef property, unsigned value) {
  llvm::LLVMContext& context = *context_;
  module_->getOrInsertNamedMetadata("nvvm.annotations")
      ->addOperand(llvm::MDNode::get(
          context, {llvm::ValueAsMetadata::get(&kernel), llvm::MDString::get(context, property),
                    llvm::ConstantAsMetadata::get(llvm::ConstantInt::get(llvm::Type::getInt32Ty(context), value))}));
}

void DeviceModule::limitRegisters(llvm::StringRef kernel, unsigned most) {
  annotate(*module_->getFunction(kernel), "maxnreg", most);
}

Status DeviceModule::readBitcode(std::string_view bitcode, std::span<const std::string_view> kernels) {
  const llvm::MemoryBufferRef buffer(llvm::StringRef(bitcode.data(), bitcode.size()), "srjit");
  llvm::Expected<std::unique_ptr<llvm::Module>> read = llvm::parseBitcodeFile(buffer, *context_);
  if (!read) return Error{Errc::kCompile, "unreadable bitcode: " + llvm::toString(read.takeError()), {}};
  module_ = std::move(*read);
  is_bitcode_ = true;
  module_->setDataLayout(target_->createDataLayout());
  llvm::internalizeModule(*module_, [&](const llvm::GlobalValue& value) {
    return std::ranges::find(kernels, std::string_view(value.getName())) != kernels.end();
  });
  // Of the processor for which the bitcode was made; the kernels are for that of the options.
  for (llvm::Function& function : *module_) {
    function.removeFnAttr("target-cpu");
    function.removeFnAttr("target-features");
  }
  return okStatus();
}

Status DeviceModule::finish() {
  std::string report;
  llvm::raw_string_ostream stream(report);
  if (llvm::verifyModule(*module_, &stream)) return Error{Errc::kCompile, "invalid LLVM IR: " + stream.str(), {}};
  is_bitcode_ ? optimizeBitcode(*module_, target_->getTargetIRAnalysis()) : optimizeDeviceModule(*module_);
  keepReciprocalsApart(*module_);
  return okStatus();
}

std::string DeviceModule::ir() { return textWithPlaces(*module_); }

Result<std::string> DeviceModule::ptx() {
  llvm::SmallString<0> text;
  llvm::raw_svector_ostream stream(text);
  llvm::legacy::PassManager passes;
  const bool names_source = !module_->debug_compile_units().empty();
  if (names_source ? addPassesToEmitWithPlaces(*target_, passes, stream)
                   : target_->addPassesToEmitFile(passes, stream, nullptr, llvm::CodeGenFileType::AssemblyFile)) {
    return Error{Errc::kCompile, "LLVM cannot print PTX", {}};
  }
  passes.run(*module_);
  return text.str().str();
}

Result<std::string> irOf(const BuildModule& build, bool optimized) {
  const LlvmScope scope;
  Result<DeviceModule> made = build();
  if (!made) return std::move(made).error();
  if (optimized) {
    if (Status finished = made->finish(); !finished) return std::move(finished).error();
  }
  return made->ir();
}

Result<std::string> ptxOf(const BuildModule& build) {
  const LlvmScope scope;
  Result<DeviceModule> made = build();
  if (!made) return std::move(made).error();
  if (Status finished = made->finish(); !finished) return std::move(finished).error();
  return made->ptx();
}

}  // namespace srjit
