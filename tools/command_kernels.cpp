// Commands that show what is compiled: llvm, ptx, cubin, sass, bytecode, asm.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "compiler/bytecode.h"
#include "compiler/cubin_writer.h"
#include "compiler/direct.h"
#include "compiler/host_jit.h"
#include "compiler/sass_listing.h"
#include "ir/lexer.h"
#include "runtime/assembler.h"
#include "tools/commands.h"
#include "tools/kernel_options.h"
#include "tools/output_file.h"

namespace srjit {
namespace {

// Options of addDeviceOptions().
constexpr const char* kDeviceOptions[] = {"--kernel", "--arch", "--rows-per-thread", "--depth",
                                          "--loss",   "--nan",  "--weighted"};

struct LlvmOptions {
  KernelOptions kernel;
  bool unoptimized = false, host = false;
};

Result<std::string> hostText(const Dag& graph, const KernelOptions& options, bool assembly, bool optimized) {
  const auto jit = HostJit::create(options.precision, options.math);
  if (!jit) return jit.error();
  return assembly ? (*jit)->assemblyOf(graph) : (*jit)->irOf(graph, optimized);
}

Result<std::string> llvmText(const Dag& graph, const LlvmOptions& options) {
  const KernelOptions& kernel = options.kernel;
  if (options.host) return hostText(graph, kernel, false, !options.unoptimized);
  if (kernel.kind != KernelKind::kInterpreter) return rowsIr({&graph, 1}, kernel.device(), !options.unoptimized);
  return interpreterIr(interpreterFor(graph, kernel), kernel.device(), !options.unoptimized);
}

Result<std::string> ptxText(const Dag& graph, const KernelOptions& options) {
  if (options.kind != KernelKind::kInterpreter) return rowsPtx({&graph, 1}, options.device());
  return interpreterPtx(interpreterFor(graph, options), options.device());
}

Result<Cubin> cubinOf(const Dag& graph, const KernelOptions& options) {
  const Result<std::string> ptx = ptxText(graph, options);
  if (!ptx) return ptx.error();
  return assemble(*ptx, options.arch);
}

struct CubinOptions {
  KernelOptions kernel;
  std::string out;
  bool json = false;
};

Status writeCubin(const Cubin& cubin, const std::string& path) {
  Result<OutputFile> out = OutputFile::create(path);
  if (!out) return out.error();
  out->write({reinterpret_cast<const char*>(cubin.image.data()), cubin.image.size()});
  return out->publish();
}

/// Writes the cubin, and gives the facts to print.
Result<std::string> cubinText(const Dag& graph, const CubinOptions& options) {
  const Result<Cubin> cubin = cubinOf(graph, options.kernel);
  if (!cubin) return cubin.error();
  if (const Status written = writeCubin(*cubin, options.out); !written) return written.error();
  std::string text;
  nlohmann::ordered_json object{{"arch", options.kernel.arch}, {"bytes", cubin->image.size()}};
  for (const KernelFacts& facts : cubin->kernels) {
    text +=
        fmt::format("{}: {} registers, {} bytes of stack frame, {} bytes of spill stores, {} bytes of spill loads\n",
                    facts.name, facts.registers, facts.stack_bytes, facts.spill_store_bytes, facts.spill_load_bytes);
    object["kernels"].push_back({{"name", facts.name},
                                 {"registers", facts.registers},
                                 {"stack_bytes", facts.stack_bytes},
                                 {"spill_store_bytes", facts.spill_store_bytes},
                                 {"spill_load_bytes", facts.spill_load_bytes}});
  }
  text += fmt::format("{}: {} bytes for {}\n", text::printable(options.out), cubin->image.size(), options.kernel.arch);
  return options.json ? object.dump(2) + '\n' : text;
}

/// The direct tier's code for all expressions, which must have some.
Result<std::string> directText(const Dag& graph, const KernelOptions& options) {
  if (options.kind == KernelKind::kInterpreter) {
    return Error{Errc::kInvalid, "--tier direct has kernels for values and losses", {}};
  }
  DirectOptions direct;
  direct.architecture = static_cast<unsigned>(std::stoul(options.arch.substr(3)));
  direct.precision = options.precision;
  direct.math = options.math;
  direct.loss = options.device().loss;
  Result<DirectEmitter> emitter = DirectEmitter::create(direct);
  if (!emitter) return emitter.error();
  const DirectPart part = emitter->emit(graph);
  if (!part.refused.empty()) {
    return Error{Errc::kUnsupported, fmt::format("the direct tier has no code for expression {}", part.refused[0]), {}};
  }
  const Result<DirectImage> image = joinDirect({&part, 1}, direct);
  if (!image) return image.error();
  const KernelDescription kernel = directKernel(*image);
  return sass::listing(srjit::writeCubin({&kernel, 1}, direct.architecture));
}

Result<std::string> sassText(const Dag& graph, const KernelOptions& options) {
  const Result<Cubin> cubin = cubinOf(graph, options);
  if (!cubin) return cubin.error();
  return disassemble(cubin->image);
}

/// All expressions as programs of one batch: the graph's roots in order.
Result<std::string> bytecodeText(const Dag& graph, const KernelOptions& options) {
  const HandlerTable table = interpreterFor(graph, options);
  EncodeOptions encoding;
  encoding.staged_columns = graph.variableCount();
  encoding.max_slots = DeviceToken::kColumnMask;
  const Result<Bytecode> code = encode(graph, table, encoding);
  if (!code) return code.error();
  return printBytecode(*code, table, encoding);
}

}  // namespace

Runner defineLlvm(CLI::App& app) {
  auto options = std::make_shared<LlvmOptions>();
  addGraphOptions(app, options->kernel);
  addDeviceOptions(app, options->kernel);
  app.add_flag("--unoptimized", options->unoptimized, "as it is lowered, before LLVM's passes");
  CLI::Option* host = app.add_flag("--host", options->host, "the kernel for this processor instead of a GPU");
  for (const char* name : kDeviceOptions) host->excludes(app.get_option(name));
  app.footer(
      "Examples:\n"
      "  sr-jit llvm 'x0*x1 + 2' --unoptimized\n"
      "  sr-jit llvm --kernel loss --loss mae --nan skip 'sin(x0)'");
  return [options] { return showKernel(options->kernel, [&](const Dag& graph) { return llvmText(graph, *options); }); };
}

Runner definePtx(CLI::App& app) {
  auto options = std::make_shared<KernelOptions>();
  addGraphOptions(app, *options);
  addDeviceOptions(app, *options);
  app.footer(
      "Needs no GPU. The kernel's geometry and parameters are described in compiler/device.h.\n"
      "Examples:\n"
      "  sr-jit ptx 'x0*x1 + 2'\n"
      "  sr-jit ptx --kernel interpreter --math fast --arch sm_80 'exp(x0)/x1'");
  return [options] { return showKernel(*options, [&](const Dag& graph) { return ptxText(graph, *options); }); };
}

Runner defineCubin(CLI::App& app) {
  auto options = std::make_shared<CubinOptions>();
  addGraphOptions(app, options->kernel);
  addDeviceOptions(app, options->kernel);
  app.add_option("-o,--out", options->out, "the file to write; standard output gets facts of it")
      ->check([](const std::string& name) { return name == "-" ? "a cubin goes to a file only" : ""; }, "")
      ->type_name("FILE")
      ->required();
  addJsonOption(app, options->json);
  app.footer(
      "Needs no GPU, but nvJitLink or ptxas of a CUDA toolkit.\n"
      "Example:\n  sr-jit cubin 'x0*x1 + 2' -o kernel.cubin");
  return
      [options] { return showKernel(options->kernel, [&](const Dag& graph) { return cubinText(graph, *options); }); };
}

Runner defineSass(CLI::App& app) {
  auto options = std::make_shared<KernelOptions>();
  auto tier = std::make_shared<Tier>(Tier::kCompile);
  addGraphOptions(app, *options);
  addDeviceOptions(app, *options);
  addChoice(app, "--tier", *tier, {{"compile", Tier::kCompile}, {"direct", Tier::kDirect}},
            "whose code: LLVM's and the assembler's, or that of sr-jit's own");
  app.footer(
      "Needs no GPU, but nvJitLink or ptxas, and nvdisasm of a CUDA toolkit; with --tier direct nothing.\n"
      "Examples:\n  sr-jit sass 'x0*x1 + 2'\n  sr-jit sass --tier direct --math fast 'x0*x1 + 2'");
  return [options, tier] {
    return showKernel(*options, [&](const Dag& graph) {
      return *tier == Tier::kDirect ? directText(graph, *options) : sassText(graph, *options);
    });
  };
}

Runner defineBytecode(CLI::App& app) {
  auto options = std::make_shared<KernelOptions>();
  options->kind = KernelKind::kInterpreter;
  addGraphOptions(app, *options);
  app.add_option("--depth", options->depth, "registers of the interpreter's stack")
      ->check(CLI::Range(3u, 16u).description(""))
      ->type_name("3..16")
      ->capture_default_str();
  app.footer("Example:\n  sr-jit bytecode 'x0*x1 + 2' 'sin(x0*x1)'");
  return [options] { return showKernel(*options, [&](const Dag& graph) { return bytecodeText(graph, *options); }); };
}

Runner defineAsm(CLI::App& app) {
  auto options = std::make_shared<KernelOptions>();
  addGraphOptions(app, *options);
  app.footer("Example:\n  sr-jit asm --precision f64 'x0*x1 + 2'");
  return [options] {
    return showKernel(*options, [&](const Dag& graph) { return hostText(graph, *options, true, true); });
  };
}

}  // namespace srjit
