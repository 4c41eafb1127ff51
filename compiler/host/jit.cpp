#include "compiler/host/jit.h"

#include <map>
#include <mutex>
#include <optional>
#include <tuple>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <llvm/ADT/SmallString.h>
#include <llvm/ExecutionEngine/Orc/JITTargetMachineBuilder.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/Verifier.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/TargetParser/Host.h>
#include <tbb/enumerable_thread_specific.h>
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>

#include "compiler/host/program.h"
#include "compiler/lowering/llvm_modules.h"
#include "compiler/lowering/llvm_scope.h"
#include "compiler/lowering/operators.h"
#include "compiler/lowering/source_map.h"
#include "ir/ops.h"

namespace srjit {
namespace {

void initializeNativeTarget() {
  static const bool done = [] {
    llvm::InitializeNativeTarget();
    llvm::InitializeNativeTargetAsmPrinter();
    llvm::InitializeNativeTargetAsmParser();
    return true;
  }();
  (void)done;
}

using TargetMachine = std::unique_ptr<llvm::TargetMachine>;

Result<TargetMachine> targetMachineFor(const HostTarget& host) {
  initializeNativeTarget();
  llvm::orc::JITTargetMachineBuilder builder{llvm::Triple(llvm::sys::getProcessTriple())};
  builder.setCPU(host.cpu);
  builder.setRelocationModel(llvm::Reloc::PIC_);
  builder.setCodeGenOptLevel(llvm::CodeGenOptLevel::Default);
  builder.getOptions().AllowFPOpFusion = llvm::FPOpFusion::Strict;
  llvm::SmallVector<llvm::StringRef, 128> names;
  llvm::StringRef(host.features).split(names, ',', -1, false);
  builder.addFeatures({names.begin(), names.end()});
  auto machine = builder.createTargetMachine();
  if (machine) return std::move(*machine);
  return Error{Errc::kCompile, "cannot generate code for this processor: " + llvm::toString(machine.takeError()), {}};
}

using EmitModule = std::function<void(llvm::Module&)>;

/// Runs `emit` on a new module and optimises the result.
Status buildModule(llvm::Module& module, llvm::TargetMachine& machine, bool optimize, const EmitModule& emit) {
  module.setDataLayout(machine.createDataLayout());
  module.setTargetTriple(machine.getTargetTriple().str());
  emit(module);
  std::string report;
  llvm::raw_string_ostream stream(report);
  if (llvm::verifyModule(module, &stream)) return Error{Errc::kCompile, "invalid LLVM IR: " + stream.str(), {}};
  if (optimize) optimizeHostModule(module);
  return okStatus();
}

/// Makes objects, one after the other. Starting LLVM's code generator takes as long as half of a short handler, so
/// several modules share one.
class ObjectMaker {
 public:
  Result<std::vector<std::byte>> make(const HostTarget& host, const EmitModule& emit) {
    const LlvmScope scope;
    if (!generator_) {
      auto machine = targetMachineFor(host);
      if (!machine) return std::move(machine).error();
      auto started = std::make_unique<Generator>(std::move(*machine));
      llvm::MCContext* context = nullptr;
      if (started->machine->addPassesToEmitMC(started->passes, context, started->stream)) {
        return Error{Errc::kCompile, "LLVM makes no objects for this processor", {}};
      }
      generator_ = std::move(started);
    }
    llvm::Module module("srjit", generator_->context);
    if (Status built = buildModule(module, *generator_->machine, true, emit); !built) return std::move(built).error();
    generator_->bytes.clear();
    generator_->passes.run(module);
    const auto bytes = std::as_bytes(std::span(generator_->bytes.data(), generator_->bytes.size()));
    return std::vector<std::byte>(bytes.begin(), bytes.end());
  }
  ~ObjectMaker() {
    const LlvmScope scope;
    generator_.reset();
  }

 private:
  struct Generator {
    explicit Generator(TargetMachine of) : machine(std::move(of)) {}
    llvm::LLVMContext context;
    TargetMachine machine;
    llvm::SmallVector<char, 0> bytes;
    llvm::raw_svector_ostream stream{bytes};
    llvm::legacy::PassManager passes;
  };
  std::unique_ptr<Generator> generator_;  ///< from the first object on
};

/// A function that every program may use.
struct SharedFunction {
  std::string title;
  EmitModule emit;
};

SharedFunction sharedFunctionOf(const HandlerKey& key, const HostOptions& options) {
  const bool is_move = key.op < 0;
  const auto op = static_cast<Op>(is_move ? 0 : key.op);
  std::vector<std::string_view> operands;
  for (int i = 0; i < (is_move ? 1 : arityOf(op)); ++i) {
    operands.push_back((key.scalar_mask >> i & 1) != 0 ? "value" : "rows");
  }
  return {fmt::format("handler {}({}) {} {}", is_move ? "move" : infoOf(op).name, fmt::join(operands, ", "),
                      nameOf(options.precision), nameOf(options.math)),
          [=](llvm::Module& module) { emitHostHandler(module, kHostFunction, key, options); }};
}

SharedFunction sharedFunctionOf(const LossSpec& spec, const HostOptions& options) {
  const auto& [term, weighted, skip_invalid] = spec;
  return {fmt::format("{} loss{}{} {} {}", infoOf(term).name, weighted ? " with weights" : "",
                      skip_invalid ? " of valid rows" : "", nameOf(options.precision), nameOf(options.math)),
          [=](llvm::Module& module) { emitHostLoss(module, kHostFunction, spec, options); }};
}

Result<HostObject> unkept(const std::string&, const MakeHostObject& make) {
  auto made = make();
  if (!made) return std::move(made).error();
  return std::make_shared<const std::vector<std::byte>>(std::move(*made));
}

}  // namespace

const HostTarget& detectHost() {
  static const HostTarget detected = [] {
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
  }();
  return detected;
}

struct HostJit::State {
  const Precision precision;
  const Math math;
  const HostTarget host;
  const HostObjects objects;
  std::mutex mutex = {};                                                           // guards all below
  std::vector<HostHandler> handlers = std::vector<HostHandler>(handlerNumbers());  // null: none yet
  std::map<std::tuple<LossTerm, bool, bool>, HostLossKernel> losses = {};
  std::vector<LinkedCode> code = {};  // of these

  HostOptions options() const { return {precision, math, host.vector_bytes}; }

  /// Their code, in order; it stays. Precondition: `mutex` is locked. So the calling thread takes no other task
  /// meanwhile: that might want the lock, too.
  Result<std::vector<void*>> load(std::span<const SharedFunction> wanted) {
    std::vector<std::optional<Result<HostObject>>> found(wanted.size());
    tbb::enumerable_thread_specific<ObjectMaker> makers;
    const auto find = [&](std::size_t i) {
      found[i] = objects(wanted[i].title, [&] { return makers.local().make(host, wanted[i].emit); });
    };
    tbb::this_task_arena::isolate([&] { tbb::parallel_for(std::size_t{0}, wanted.size(), find); });
    std::vector<HostObject> kept;
    for (std::optional<Result<HostObject>>& object : found) {
      if (!*object) return std::move(*object).error();
      kept.push_back(std::move(**object));
    }
    auto linked = linkObjects(kept);
    if (!linked) return std::move(linked).error();
    code.push_back(std::move(*linked));
    return code.back().functions;
  }

  // `print` applied to a module with one kernel per graph.
  template <class Print>
  Result<std::string> show(std::span<const Dag> dags, std::span<const SourceMap> sources, bool optimize,
                           Print print) const {
    const LlvmScope scope;
    auto machine = targetMachineFor(host);
    if (!machine) return std::move(machine).error();
    llvm::LLVMContext context;
    llvm::Module module("srjit", context);
    const auto emit = [&](llvm::Module& m) {
      for (std::size_t i = 0; i < dags.size(); ++i) {
        emitHostKernel(m, rowsKernelName(i), dags[i], options(), sources.empty() ? nullptr : &sources[i]);
      }
    };
    if (Status built = buildModule(module, **machine, optimize, emit); !built) return std::move(built).error();
    return print(module, **machine);
  }
};

HostJit::HostJit(Precision precision, Math math, HostTarget target, HostObjects objects)
    : state_(new State{precision, math, std::move(target), objects ? std::move(objects) : unkept}) {}
HostJit::~HostJit() = default;
Precision HostJit::precision() const noexcept { return state_->precision; }
Math HostJit::math() const noexcept { return state_->math; }

Result<std::vector<HostHandler>> HostJit::handlers(std::span<const HandlerKey> keys) {
  State& state = *state_;
  const std::lock_guard lock(state.mutex);
  std::map<std::uint32_t, SharedFunction> missing;
  for (const HandlerKey& key : keys) {
    const std::uint32_t number = handlerNumber(key);
    if (state.handlers[number] == nullptr) missing.emplace(number, sharedFunctionOf(key, state.options()));
  }
  if (!missing.empty()) {
    std::vector<SharedFunction> wanted;
    for (auto& [number, function] : missing) wanted.push_back(std::move(function));
    const auto code = state.load(wanted);
    if (!code) return code.error();
    for (auto place = code->begin(); const auto& [number, function] : missing) {
      state.handlers[number] = reinterpret_cast<HostHandler>(*place++);
    }
  }
  std::vector<HostHandler> result;
  result.reserve(keys.size());
  for (const HandlerKey& key : keys) result.push_back(state.handlers[handlerNumber(key)]);
  return result;
}

Result<HostCode> HostJit::compile(const Dag& dag) {
  ObjectMaker maker;
  auto made = maker.make(state_->host,
                         [&](llvm::Module& module) { emitHostKernel(module, kHostFunction, dag, state_->options()); });
  if (!made) return std::move(made).error();
  const HostObject object = std::make_shared<const std::vector<std::byte>>(std::move(*made));
  const auto code = linkObjects({&object, 1});
  if (!code) return code.error();
  return HostCode(code->memory, reinterpret_cast<HostKernel>(code->functions[0]));
}

Result<HostLossKernel> HostJit::loss(const LossSpec& spec) {
  State& state = *state_;
  const std::tuple key{spec.term, spec.weighted, spec.skip_invalid};
  const std::lock_guard lock(state.mutex);
  HostLossKernel& kernel = state.losses[key];
  if (kernel == nullptr) {
    const SharedFunction wanted = sharedFunctionOf(spec, state.options());
    const auto code = state.load({&wanted, 1});
    if (!code) return code.error();
    kernel = reinterpret_cast<HostLossKernel>(code->front());
  }
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
