#include "compiler/host/jit.h"

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include <llvm/ExecutionEngine/Orc/CompileUtils.h>
#include <llvm/ExecutionEngine/Orc/ExecutionUtils.h>
#include <llvm/ExecutionEngine/Orc/LLJIT.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/Verifier.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/TargetParser/Host.h>

#include "compiler/loader/shared_library.h"
#include "compiler/lowering/llvm_modules.h"
#include "compiler/lowering/llvm_scope.h"
#include "compiler/lowering/operators.h"
#include "compiler/lowering/source_map.h"
#include "ir/ops.h"

namespace srjit {
namespace {

namespace orc = llvm::orc;

/// The functions of a library for code of the JIT. LLVM's own generator would make them visible to the whole process.
class LibraryFunctions final : public orc::DefinitionGenerator {
 public:
  explicit LibraryFunctions(SharedLibrary library) : library_(std::move(library)) {}

  llvm::Error tryToGenerate(orc::LookupState&, orc::LookupKind, orc::JITDylib& code, orc::JITDylibLookupFlags,
                            const orc::SymbolLookupSet& names) override {
    orc::SymbolMap found;
    for (const auto& [name, flags] : names) {
      if (void* const address = library_.find((*name).str().c_str())) {
        found[name] = {orc::ExecutorAddr::fromPtr(address), llvm::JITSymbolFlags::Exported};
      }
    }
    return found.empty() ? llvm::Error::success() : code.define(orc::absoluteSymbols(std::move(found)));
  }

 private:
  SharedLibrary library_;
};

// Every LLVM error is converted here.
Error fromLlvm(llvm::Error error, const char* doing) {
  return Error{Errc::kCompile, std::string(doing) + ": " + llvm::toString(std::move(error)), {}};
}

void initializeNativeTarget() {
  static const bool done = [] {
    llvm::InitializeNativeTarget();
    llvm::InitializeNativeTargetAsmPrinter();
    llvm::InitializeNativeTargetAsmParser();
    return true;
  }();
  (void)done;
}

// The last link error of this thread. ORC reports the reason only to its session; a symbol lookup reports nothing
// but failure.
thread_local std::string link_failure;

using HandlerId = std::pair<std::int16_t, std::uint8_t>;

}  // namespace

HostTarget detectHost() {
  const LlvmScope scope;
  HostTarget host;
  host.cpu = llvm::sys::getHostCPUName().str();
  const llvm::StringMap<bool> features = llvm::sys::getHostCPUFeatures();
  const auto has = [&](llvm::StringRef name) { return features.lookup(name); };
  for (const auto& feature : features) {
    if (!host.features.empty()) host.features += ',';
    host.features += feature.second ? '+' : '-';
    host.features += feature.first();
  }
  host.has_fma = has("fma");
  if (has("avx512f") && has("avx512vl") && has("avx512dq")) {
    host.vector_bytes = 64;
  } else if (has("avx2") && has("fma")) {
    host.vector_bytes = 32;
  }
  return host;
}

struct HostJit::State {
  Precision precision;
  Math math;
  HostTarget host;
  // Shared with every HostCode, so that code may outlive the HostJit.
  std::shared_ptr<orc::LLJIT> jit;
  std::atomic<std::uint64_t> next_name{0};
  std::mutex mutex;  // guards the two maps
  std::map<HandlerId, HostHandler> handlers;
  std::map<std::pair<int, int>, HostLossKernel> losses;

  ~State() {
    const LlvmScope scope;
    jit.reset();
  }

  HostOptions options() const { return {precision, math, host.vector_bytes}; }
  std::string freshName() { return "srjit_" + std::to_string(next_name++); }

  Result<std::unique_ptr<llvm::TargetMachine>> targetMachine() const {
    const std::string triple = llvm::sys::getProcessTriple();
    orc::JITTargetMachineBuilder builder{llvm::Triple(triple)};
    builder.setCPU(host.cpu);
    builder.setRelocationModel(llvm::Reloc::PIC_);
    builder.setCodeGenOptLevel(llvm::CodeGenOptLevel::Default);
    builder.getOptions().AllowFPOpFusion = llvm::FPOpFusion::Strict;
    llvm::SmallVector<llvm::StringRef, 128> parts;
    llvm::StringRef(host.features).split(parts, ',', -1, false);
    builder.addFeatures({parts.begin(), parts.end()});
    auto machine = builder.createTargetMachine();
    if (!machine) return fromLlvm(machine.takeError(), "cannot generate code for this processor");
    return std::move(*machine);
  }

  // Runs `emit` on a new module and optimises the result.
  template <class Emit>
  Status build(llvm::Module& module, llvm::TargetMachine& machine, bool optimize, Emit emit) const {
    module.setDataLayout(machine.createDataLayout());
    module.setTargetTriple(machine.getTargetTriple().str());
    emit(module);
    std::string report;
    llvm::raw_string_ostream stream(report);
    if (llvm::verifyModule(module, &stream)) return Error{Errc::kCompile, "invalid LLVM IR: " + stream.str(), {}};
    if (optimize) optimizeHostModule(module);
    return okStatus();
  }

  // Compiles a module into the JIT under a tracker of its own.
  template <class Emit>
  Result<orc::ResourceTrackerSP> add(Emit emit) {
    auto machine = targetMachine();
    if (!machine) return std::move(machine).error();
    llvm::LLVMContext context;
    llvm::Module module("srjit", context);
    if (Status built = build(module, **machine, true, emit); !built) return std::move(built).error();
    auto object = orc::SimpleCompiler(**machine)(module);
    if (!object) return fromLlvm(object.takeError(), "cannot compile for this processor");
    auto tracker = jit->getMainJITDylib().createResourceTracker();
    if (auto error = jit->addObjectFile(tracker, std::move(*object))) return fromLlvm(std::move(error), "cannot link");
    return tracker;
  }

  // `print` applied to a module with one kernel per graph.
  template <class Print>
  Result<std::string> show(std::span<const Dag> dags, std::span<const SourceMap> sources, bool optimize,
                           Print print) const {
    const LlvmScope scope;
    auto machine = targetMachine();
    if (!machine) return std::move(machine).error();
    llvm::LLVMContext context;
    llvm::Module module("srjit", context);
    const auto emit = [&](llvm::Module& m) {
      for (std::size_t i = 0; i < dags.size(); ++i) {
        emitHostKernel(m, rowsKernelName(i), dags[i], options(), sources.empty() ? nullptr : &sources[i]);
      }
    };
    if (Status built = build(module, **machine, optimize, emit); !built) return std::move(built).error();
    return print(module, **machine);
  }

  template <class F>
  Result<F> lookup(const std::string& name) {
    link_failure.clear();
    auto address = jit->lookup(name);
    if (address) return address->toPtr<F>();
    Error error = fromLlvm(address.takeError(), "cannot link");
    if (!link_failure.empty()) error.message += ": " + link_failure;
    return error;
  }
};

HostJit::HostJit(std::unique_ptr<State> state) : state_(std::move(state)) {}
HostJit::~HostJit() = default;
Precision HostJit::precision() const noexcept { return state_->precision; }
Math HostJit::math() const noexcept { return state_->math; }

Result<std::unique_ptr<HostJit>> HostJit::create(Precision precision, Math math, HostTarget target) {
  const LlvmScope scope;
  initializeNativeTarget();
  auto state = std::make_unique<State>();
  state->host = std::move(target);
  state->precision = precision;
  state->math = math;
  auto jit = orc::LLJITBuilder().create();
  if (!jit) return fromLlvm(jit.takeError(), "cannot start LLVM's JIT");
  state->jit = std::move(*jit);
  // The default reporter prints errors; the library never prints.
  state->jit->getExecutionSession().setErrorReporter(
      [](llvm::Error failure) { link_failure = llvm::toString(std::move(failure)); });
  const char prefix = state->jit->getDataLayout().getGlobalPrefix();
  auto& library = state->jit->getMainJITDylib();
  auto process = orc::DynamicLibrarySearchGenerator::GetForCurrentProcess(prefix);
  if (!process) return fromLlvm(process.takeError(), "cannot search this process for symbols");
  library.addGenerator(std::move(*process));
  // LLVM calls it for operations that the processor has no instruction for. Where it is missing, such code has an
  // error.
  if (const Result<SharedLibrary> functions = SharedLibrary::open("libm.so.6")) {
    library.addGenerator(std::make_unique<LibraryFunctions>(*functions));
  }
  return std::unique_ptr<HostJit>(new HostJit(std::move(state)));
}

Result<std::vector<HostHandler>> HostJit::handlers(std::span<const HandlerKey> keys) {
  const LlvmScope scope;
  const std::lock_guard lock(state_->mutex);
  std::map<HandlerId, std::string> missing;
  for (const HandlerKey& key : keys) {
    const HandlerId handler{key.op, key.scalar_mask};
    if (!state_->handlers.contains(handler)) missing.emplace(handler, "");
  }
  if (!missing.empty()) {
    for (auto& [handler, name] : missing) name = state_->freshName();
    const auto tracker = state_->add([&](llvm::Module& module) {
      for (const auto& [handler, name] : missing) {
        emitHostHandler(module, name, HandlerKey{handler.first, handler.second}, state_->options());
      }
    });
    if (!tracker) return tracker.error();
    for (const auto& [handler, name] : missing) {
      const auto function = state_->lookup<HostHandler>(name);
      if (!function) return function.error();
      state_->handlers.emplace(handler, *function);
    }
  }
  std::vector<HostHandler> result;
  result.reserve(keys.size());
  for (const HandlerKey& key : keys) result.push_back(state_->handlers.at({key.op, key.scalar_mask}));
  return result;
}

Result<HostCode> HostJit::compile(const Dag& dag) {
  const LlvmScope scope;
  const std::string name = state_->freshName();
  auto tracker = state_->add([&](llvm::Module& module) { emitHostKernel(module, name, dag, state_->options()); });
  if (!tracker) return std::move(tracker).error();
  const auto kernel = state_->lookup<HostKernel>(name);
  if (!kernel) return kernel.error();
  struct Owner {
    std::shared_ptr<orc::LLJIT> jit;
    orc::ResourceTrackerSP tracker;
    Owner(std::shared_ptr<orc::LLJIT> j, orc::ResourceTrackerSP t) : jit(std::move(j)), tracker(std::move(t)) {}
    Owner(const Owner&) = delete;
    Owner& operator=(const Owner&) = delete;
    ~Owner() {
      const LlvmScope scope;
      llvm::consumeError(tracker->remove());
      tracker.reset();
      jit.reset();
    }
  };
  return HostCode(std::make_shared<Owner>(state_->jit, std::move(*tracker)), *kernel);
}

Result<HostLossKernel> HostJit::loss(const LossSpec& spec) {
  const LlvmScope scope;
  const std::pair key{static_cast<int>(spec.term), (spec.weighted ? 1 : 0) + (spec.skip_invalid ? 2 : 0)};
  const std::lock_guard lock(state_->mutex);
  if (const auto found = state_->losses.find(key); found != state_->losses.end()) return found->second;
  const std::string name = state_->freshName();
  const auto tracker = state_->add([&](llvm::Module& module) { emitHostLoss(module, name, spec, state_->options()); });
  if (!tracker) return tracker.error();
  auto kernel = state_->lookup<HostLossKernel>(name);
  if (kernel) state_->losses.emplace(key, *kernel);
  return kernel;
}

Result<std::string> HostJit::irOf(std::span<const Dag> dags, bool optimized, std::span<const SourceMap> sources) const {
  return state_->show(dags, sources, optimized, [](llvm::Module& module, llvm::TargetMachine&) -> Result<std::string> {
    return textWithPlaces(module);
  });
}

Result<std::string> HostJit::assemblyOf(std::span<const Dag> dags, std::span<const SourceMap> sources) const {
  return state_->show(dags, sources, true,
                      [](llvm::Module& module, llvm::TargetMachine& machine) -> Result<std::string> {
                        llvm::SmallString<0> text;
                        llvm::raw_svector_ostream stream(text);
                        llvm::legacy::PassManager passes;
                        if (machine.addPassesToEmitFile(passes, stream, nullptr, llvm::CodeGenFileType::AssemblyFile)) {
                          return Error{Errc::kCompile, "LLVM cannot print assembly for this processor", {}};
                        }
                        passes.run(module);
                        return text.str().str();
                      });
}

}  // namespace srjit
