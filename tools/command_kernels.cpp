// Commands that show what is compiled: llvm, ptx, cubin, sass, bytecode, asm.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "compiler/direct/emitter.h"
#include "compiler/host/jit.h"
#include "compiler/interpreter/bytecode.h"
#include "compiler/interpreter/kernel.h"
#include "compiler/interpreter/print_bytecode.h"
#include "compiler/kernels/assembler.h"
#include "compiler/lowering/kernel_name.h"
#include "compiler/nvptx/rows_kernel.h"
#include "compiler/sass/cubin_writer.h"
#include "compiler/sass/listing.h"
#include "ir/lexer.h"
#include "tools/commands.h"
#include "tools/kernel_options.h"
#include "tools/output_file.h"

namespace srjit {
namespace {

// Options of addDeviceOptions().
constexpr const char* kDeviceOptions[] = {"--kernel", "--arch", "--rows-per-thread", "--depth",
                                          "--loss",   "--nan",  "--weighted"};

// What --max-length counts in.
constexpr const char* kDeviceLength = "instructions per row, each number and variable one";
constexpr const char* kHostLength = "tokens";

constexpr const char* kDivision =
    "Many expressions are divided among kernels srjit_rows_0, srjit_rows_1, ... in order, as an engine divides them.\n";

struct LlvmOptions {
  KernelOptions kernel;
  bool unoptimized = false, host = false;
};

/// What a GPU's kernel of this kind is made of.
KernelCode deviceCode(const KernelOptions& options) {
  return options.kind == ShownKernel::kInterpreter ? KernelCode::kOneGraph : KernelCode::kDevice;
}

/// The text of kernels below a comment that tells which expressions each of them has.
Result<std::string> commented(const KernelInput& input, std::string_view mark, Result<std::string> text) {
  if (!text) return text;
  return input.comment(mark) + *text;
}

Result<std::string> llvmText(const KernelInput& input, const LlvmOptions& options) {
  const KernelOptions& kernel = options.kernel;
  const bool optimized = !options.unoptimized;
  if (options.host) {
    const auto jit = HostJit::create(kernel.precision, kernel.math);
    if (!jit) return jit.error();
    return commented(input, ";", (*jit)->irOf(input.graphs, optimized));
  }
  if (kernel.kind == ShownKernel::kInterpreter) {
    return interpreterIr(interpreterFor(input.graphs[0], kernel), kernel.device(), optimized);
  }
  return commented(input, ";", rowsIr(input.graphs, kernel.device(), optimized));
}

Result<std::string> asmText(const KernelInput& input, const KernelOptions& options) {
  const auto jit = HostJit::create(options.precision, options.math);
  if (!jit) return jit.error();
  return commented(input, "#", (*jit)->assemblyOf(input.graphs));
}

Result<std::string> ptxText(const KernelInput& input, const KernelOptions& options) {
  if (options.kind == ShownKernel::kInterpreter) {
    return interpreterPtx(interpreterFor(input.graphs[0], options), options.device());
  }
  return commented(input, "//", rowsPtx(input.graphs, options.device()));
}

Result<Cubin> cubinOf(const KernelInput& input, const KernelOptions& options) {
  const Result<std::string> ptx = ptxText(input, options);
  if (!ptx) return ptx.error();
  return assemble(*ptx, options.arch);
}

struct CubinOptions {
  KernelOptions kernel;
  std::string out;
  bool json = false;
};

/// Writes the cubin, and gives the facts to print.
Result<std::string> cubinText(const KernelInput& input, const CubinOptions& options) {
  Result<OutputFile> out = OutputFile::create(options.out);  // before the work, so that a bad place costs none
  if (!out) return out.error();
  const Result<Cubin> cubin = cubinOf(input, options.kernel);
  if (!cubin) return cubin.error();
  out->write({reinterpret_cast<const char*>(cubin->image.data()), cubin->image.size()});
  if (const Status written = out->publish(); !written) return written.error();
  std::string text = input.comment("#");
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
  for (std::size_t i = 0; input.graphs.size() > 1 && i < input.graphs.size(); ++i) {
    object["expressions"][rowsKernelName(i)] = {input.expressions[i].first, input.expressions[i].second};
  }
  text += fmt::format("{}: {} bytes for {}\n", text::printable(options.out), cubin->image.size(), options.kernel.arch);
  return options.json ? object.dump(2) + '\n' : text;
}

/// The direct tier's code for all expressions, which must have some.
Result<std::string> directText(const Dag& graph, const KernelOptions& options) {
  if (options.kind == ShownKernel::kInterpreter) {
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

Result<std::string> sassText(const KernelInput& input, const KernelOptions& options) {
  const Result<Cubin> cubin = cubinOf(input, options);
  if (!cubin) return cubin.error();
  return commented(input, "//", disassemble(cubin->image));
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
  addLengthOption(app, options->kernel, std::string(kDeviceLength) + "; with --host tokens");
  app.footer(std::string(kDivision) +
             "Examples:\n"
             "  sr-jit llvm 'x0*x1 + 2' --unoptimized\n"
             "  sr-jit llvm --kernel loss --loss mae --nan skip 'sin(x0)'");
  return [options] {
    const KernelCode code = options->host ? KernelCode::kHost : deviceCode(options->kernel);
    return showKernel(options->kernel, code, [&](const KernelInput& input) { return llvmText(input, *options); });
  };
}

Runner definePtx(CLI::App& app) {
  auto options = std::make_shared<KernelOptions>();
  addGraphOptions(app, *options);
  addDeviceOptions(app, *options);
  addLengthOption(app, *options, kDeviceLength);
  app.footer(
      "Needs no GPU. Geometry and parameters of kernels are described in compiler/nvptx/ and "
      "compiler/interpreter/kernel.h.\n" +
      std::string(kDivision) +
      "Examples:\n"
      "  sr-jit ptx 'x0*x1 + 2'\n"
      "  sr-jit ptx --kernel interpreter --math fast --arch sm_80 'exp(x0)/x1'");
  return [options] {
    return showKernel(*options, deviceCode(*options),
                      [&](const KernelInput& input) { return ptxText(input, *options); });
  };
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
  addLengthOption(app, options->kernel, kDeviceLength);
  app.footer("Needs no GPU, but nvJitLink or ptxas of a CUDA toolkit.\n" + std::string(kDivision) +
             "Example:\n  sr-jit cubin 'x0*x1 + 2' -o kernel.cubin");
  return [options] {
    return showKernel(options->kernel, deviceCode(options->kernel),
                      [&](const KernelInput& input) { return cubinText(input, *options); });
  };
}

Runner defineSass(CLI::App& app) {
  auto options = std::make_shared<KernelOptions>();
  auto tier = std::make_shared<Tier>(Tier::kCompile);
  addGraphOptions(app, *options);
  addDeviceOptions(app, *options);
  addChoice(app, "--tier", *tier, {{"compile", Tier::kCompile}, {"direct", Tier::kDirect}},
            "whose code: LLVM's and the assembler's, or that of sr-jit's own");
  addLengthOption(app, *options, std::string(kDeviceLength) + "; not for --tier direct");
  app.footer("Needs no GPU, but nvJitLink or ptxas, and nvdisasm of a CUDA toolkit; with --tier direct nothing.\n" +
             std::string(kDivision) +
             "Examples:\n  sr-jit sass 'x0*x1 + 2'\n  sr-jit sass --tier direct --math fast 'x0*x1 + 2'");
  return [options, tier] {
    const bool direct = *tier == Tier::kDirect;
    return showKernel(*options, direct ? KernelCode::kOneGraph : deviceCode(*options), [&](const KernelInput& input) {
      return direct ? directText(input.graphs[0], *options) : sassText(input, *options);
    });
  };
}

Runner defineBytecode(CLI::App& app) {
  auto options = std::make_shared<KernelOptions>();
  options->kind = ShownKernel::kInterpreter;
  addGraphOptions(app, *options);
  app.add_option("--depth", options->depth, "registers of the interpreter's stack")
      ->check(CLI::Range(3u, 16u).description(""))
      ->type_name("3..16")
      ->capture_default_str();
  app.footer("Example:\n  sr-jit bytecode 'x0*x1 + 2' 'sin(x0*x1)'");
  return [options] {
    return showKernel(*options, KernelCode::kOneGraph,
                      [&](const KernelInput& input) { return bytecodeText(input.graphs[0], *options); });
  };
}

Runner defineAsm(CLI::App& app) {
  auto options = std::make_shared<KernelOptions>();
  addGraphOptions(app, *options);
  addLengthOption(app, *options, kHostLength);
  app.footer(std::string(kDivision) + "Example:\n  sr-jit asm --precision f64 'x0*x1 + 2'");
  return [options] {
    return showKernel(*options, KernelCode::kHost, [&](const KernelInput& input) { return asmText(input, *options); });
  };
}

}  // namespace srjit
