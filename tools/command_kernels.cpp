// Commands that show what is compiled: llvm, ptx, bytecode, asm.
#include "compiler/bytecode.h"
#include "compiler/host_jit.h"
#include "tools/commands.h"
#include "tools/kernel_options.h"

namespace srjit {
namespace {

struct LlvmOptions {
  KernelOptions kernel;
  bool unoptimized = false, host = false;
};

Result<std::string> hostText(const Dag& graph, const KernelOptions& options, bool assembly, bool optimized) {
  const auto jit = HostJit::create(options.numbers.precision, options.numbers.math);
  if (!jit) return jit.error();
  return assembly ? (*jit)->assemblyOf(graph) : (*jit)->irOf(graph, optimized);
}

Result<std::string> llvmText(const Dag& graph, const LlvmOptions& options) {
  const KernelOptions& kernel = options.kernel;
  if (options.host) return hostText(graph, kernel, false, !options.unoptimized);
  if (kernel.kind != KernelKind::kInterpreter) return rowsIr(graph, kernel.device(), !options.unoptimized);
  return interpreterIr(interpreterFor(graph, kernel), kernel.device(), !options.unoptimized);
}

Result<std::string> ptxText(const Dag& graph, const KernelOptions& options) {
  if (options.kind != KernelKind::kInterpreter) return rowsPtx(graph, options.device());
  return interpreterPtx(interpreterFor(graph, options), options.device());
}

/// All expressions as programs of one batch: the graph's roots in order.
Result<std::string> bytecodeText(const Dag& graph, const KernelOptions& options) {
  const HandlerTable table = interpreterFor(graph, options);
  EncodeOptions encoding;
  encoding.columns = graph.variableCount();
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
  app.add_flag("--host", options->host, "the kernel for this processor instead of a GPU");
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
