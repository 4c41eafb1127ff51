// Commands that show compiled code: llvm, ptx, cubin, sass, bytecode, asm.
#include <filesystem>

#include <fmt/format.h>

#include "compiler/direct/emitter.h"
#include "compiler/host/jit.h"
#include "compiler/host/program.h"
#include "compiler/interpreter/encoder.h"
#include "compiler/interpreter/handler_table.h"
#include "compiler/interpreter/kernel.h"
#include "compiler/kernels/assembler.h"
#include "compiler/kernels/image_maker.h"
#include "compiler/lowering/source_map.h"
#include "compiler/nvptx/kernels.h"
#include "compiler/sass/cubin.h"
#include "compiler/target/architecture.h"
#include "ir/text/lexer.h"
#include "tools/commands.h"
#include "tools/kernel_options.h"
#include "tools/report.h"

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

constexpr const char* kDirectKernelDoc =
    "With --tier direct they are one kernel, srjit_direct; an expression that the tier has no code for is reported.\n";

struct LlvmOptions {
  KernelOptions kernel;
  bool unoptimized = false, host = false;
};

/// What a GPU's kernel of this kind is made of.
KernelCode deviceCode(const KernelOptions& options) {
  return options.kind == ShownKernel::kInterpreter ? KernelCode::kOneGraph : KernelCode::kDevice;
}

/// The text of kernels below a comment that tells which expressions each of them has.
std::string commented(const KernelInput& input, std::string_view mark, const Result<std::string>& text) {
  return input.comment(mark) + text.value();
}

std::string llvmText(const KernelInput& input, const LlvmOptions& options) {
  const KernelOptions& kernel = options.kernel;
  const bool optimized = !options.unoptimized;
  if (options.host) {
    return commented(input, ";", HostJit(kernel.precision, kernel.math).irOf(input.graphs, optimized));
  }
  if (kernel.kind == ShownKernel::kInterpreter) {
    return interpreterIr(interpreterFor(input.graphs[0], kernel), kernel.device(), optimized).value();
  }
  return commented(input, ";", rowsIr(input.graphs, kernel.device(), optimized));
}

std::string ptxText(const KernelInput& input, const KernelOptions& options, std::span<const SourceMap> sources = {}) {
  if (options.kind == ShownKernel::kInterpreter) {
    return interpreterPtx(interpreterFor(input.graphs[0], options), options.device()).value();
  }
  return commented(input, "//", rowsPtx(input.graphs, options.device(), sources));
}

KernelImage cubinOf(const KernelInput& input, const KernelOptions& options, std::span<const SourceMap> sources = {}) {
  return assemble(ptxText(input, options, sources), options.arch, !sources.empty()).value();
}

/// The result of `make` for the lines of --listing, or for none. The file is opened before, so that a bad place costs
/// no work, and written behind.
template <class Make>
auto withListing(const KernelInput& input, const KernelOptions& options, const Make& make) {
  if (options.listing.empty()) return make(std::span<const SourceMap>());
  OutputFile out = OutputFile::create(options.listing).value();
  const GraphListing listing = listGraphs(input.graphs, std::filesystem::absolute(options.listing).string());
  auto made = make(std::span<const SourceMap>(listing.sources));
  out.write(listing.text);
  out.publish().value();
  return made;
}

/// A kernel and who makes it.
struct TierOptions {
  KernelOptions kernel;
  Tier tier = Tier::kCompile;

  bool direct() const { return tier == Tier::kDirect; }
  KernelCode code() const { return direct() ? KernelCode::kOneGraph : deviceCode(kernel); }
};

/// Adds --tier, behind addDeviceOptions(), and --max-length.
void addTierOption(CLI::App& app, TierOptions& options) {
  addChoice(app, "--tier", options.tier, {{"compile", Tier::kCompile}, {"direct", Tier::kDirect}},
            "who makes the code: LLVM and NVIDIA's assembler, or sr-jit alone");
  addLengthOption(app, options.kernel, std::string(kDeviceLength) + "; not for --tier direct");
}

struct CubinOptions : TierOptions {
  std::string out;
  bool json = false;
};

/// Makes errors of the lines whose roots have no code, and reports them.
void refuseRoots(KernelInput& input, std::span<const std::uint32_t> roots, const DirectOptions& options) {
  std::vector<SourceLine*> lines;  // of the roots, in order
  for (SourceLine& line : input.lines) {
    if (line.ok()) lines.push_back(&line);
  }
  for (const std::uint32_t root : roots) {
    lines[root]->fail(
        failure(Errc::kUnsupported, "its code of the direct tier {}; use --tier compile", tooLongText(options)));
    report(lines[root]->expression.error());
  }
}

/// The direct tier's image with one kernel of all good expressions, which are one graph (KernelCode::kOneGraph). Those
/// without code become errors of their lines and are reported; the image is empty if no other is left.
KernelImage directCubin(KernelInput& input, const KernelOptions& options) {
  DirectOptions direct;
  direct.architecture = architectureOf(options.arch).number;
  direct.precision = options.precision;
  direct.math = options.math;
  direct.loss = options.device().loss;
  Result<DirectEmitter> emitter = DirectEmitter::create(direct);
  if (!emitter) throwError(failure(emitter.error().code, "{}; use --tier compile", emitter.error().message));
  const DirectPart part = emitter->emit(input.graphs[0]);
  refuseRoots(input, part.refused, direct);
  if (part.groups.empty()) return {};
  const DirectImage image = joinDirect({&part, 1}, direct).value();
  const KernelDescription kernel = directKernel(image);
  return {.code = writeCubin({&kernel, 1}, direct.architecture),
          .kernels = {{.name = kernel.name, .registers = kernel.registers}}};
}

/// Writes the cubin, and gives the facts to print.
std::string cubinText(KernelInput& input, const CubinOptions& options) {
  OutputFile out = OutputFile::create(options.out).value();  // before the work, so that a bad place costs none
  const KernelImage cubin = options.direct()
                                ? directCubin(input, options.kernel)
                                : withListing(input, options.kernel, [&](std::span<const SourceMap> sources) {
                                    return cubinOf(input, options.kernel, sources);
                                  });
  if (cubin.code.empty()) return "";
  out.write({reinterpret_cast<const char*>(cubin.code.data()), cubin.code.size()});
  out.publish().value();
  std::string text = input.comment("#");
  Json object{{"arch", options.kernel.arch}, {"bytes", cubin.code.size()}};
  for (const KernelFacts& facts : cubin.kernels) {
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
  text += fmt::format("{}: {} bytes for {}\n", text::printable(options.out), cubin.code.size(), options.kernel.arch);
  return options.json ? dump(object) : text;
}

std::string sassText(KernelInput& input, const TierOptions& options) {
  if (!options.direct()) return commented(input, "//", disassemble(cubinOf(input, options.kernel).code));
  const KernelImage cubin = directCubin(input, options.kernel);
  return cubin.code.empty() ? "" : sass::listing(cubin.code).value();
}

/// All expressions as programs of one batch: the graph's roots in order.
std::string bytecodeText(const Dag& graph, const KernelOptions& options) {
  const HandlerTable table = interpreterFor(graph, options);
  EncodeOptions encoding;
  encoding.staged_columns = graph.variableCount();
  encoding.max_slots = DeviceToken::kColumnMask;
  return printBytecode(encode(graph, table, encoding).value(), table, encoding);
}

/// The programs that the processor interprets, each below its expressions if there are several.
std::string hostProgramText(const KernelInput& input) {
  std::string text;
  for (std::size_t i = 0; i < input.graphs.size(); ++i) {
    if (input.graphs.size() > 1) text += fmt::format("# {}\n", input.describe(i));
    text += printProgram(encodeForHost(input.graphs[i]).value(), input.graphs[i]);
  }
  return text;
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
  return [&app, options] {
    if (!options->host) checkDeviceOptions(app, options->kernel, Tier::kCompile);
    const KernelCode code = options->host ? KernelCode::kHost : deviceCode(options->kernel);
    return showKernel(options->kernel, code, [&](const KernelInput& input) { return llvmText(input, *options); });
  };
}

Runner definePtx(CLI::App& app) {
  auto options = std::make_shared<KernelOptions>();
  addGraphOptions(app, *options);
  addDeviceOptions(app, *options);
  addLengthOption(app, *options, kDeviceLength);
  addListingOption(app, *options);
  app.footer(
      "Needs no GPU. Geometry and parameters of kernels are described in compiler/nvptx/ and "
      "compiler/interpreter/kernel.h.\n" +
      std::string(kDivision) +
      "Examples:\n"
      "  sr-jit ptx 'x0*x1 + 2'\n"
      "  sr-jit ptx --kernel interpreter --math fast --arch sm_80 'exp(x0)/x1'");
  return [&app, options] {
    checkDeviceOptions(app, *options, Tier::kCompile);
    return showKernel(*options, deviceCode(*options), [&](const KernelInput& input) {
      return withListing(input, *options,
                         [&](std::span<const SourceMap> sources) { return ptxText(input, *options, sources); });
    });
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
  addTierOption(app, *options);
  addListingOption(app, options->kernel);
  app.footer("Needs no GPU, but nvJitLink or ptxas of a CUDA toolkit; with --tier direct nothing.\n" +
             std::string(kDivision) + kDirectKernelDoc +
             "Examples:\n"
             "  sr-jit cubin 'x0*x1 + 2' -o kernel.cubin\n"
             "  sr-jit cubin --tier direct --arch sm_80 'x0*x1 + 2' -o kernel.cubin");
  return [&app, options] {
    checkDeviceOptions(app, options->kernel, options->tier);
    return showKernel(options->kernel, options->code(), [&](KernelInput& input) { return cubinText(input, *options); });
  };
}

Runner defineSass(CLI::App& app) {
  auto options = std::make_shared<TierOptions>();
  addGraphOptions(app, options->kernel);
  addDeviceOptions(app, options->kernel);
  addTierOption(app, *options);
  app.footer("Needs no GPU, but nvJitLink or ptxas, and nvdisasm of a CUDA toolkit; with --tier direct nothing.\n" +
             std::string(kDivision) + kDirectKernelDoc +
             "Examples:\n  sr-jit sass 'x0*x1 + 2'\n  sr-jit sass --tier direct --math fast 'x0*x1 + 2'");
  return [&app, options] {
    checkDeviceOptions(app, options->kernel, options->tier);
    return showKernel(options->kernel, options->code(), [&](KernelInput& input) { return sassText(input, *options); });
  };
}

Runner defineBytecode(CLI::App& app) {
  struct Options {
    KernelOptions kernel;
    bool host = false;
  };
  auto options = std::make_shared<Options>();
  options->kernel.kind = ShownKernel::kInterpreter;
  addGraphOptions(app, options->kernel);
  CLI::Option* const depth = addDepthOption(app, options->kernel);
  app.add_flag("--host", options->host, "what the interpreter of this processor runs, instead of a GPU's")
      ->excludes(depth);
  app.footer(
      "A GPU's programs are tokens of a stack machine: the height of the stack before the token, the operation, and\n"
      "where its operands are: x0 a column, parameter0 an entry of the parameter table, slot0 a kept value, s0 the\n"
      "stack. With --host they are instructions over blocks of rows, destination = operation operands; up to 8\n"
      "expressions are one program, and root0 is the result of its first.\n"
      "Examples:\n"
      "  sr-jit bytecode 'x0*x1 + 2' 'sin(x0*x1)'\n"
      "  sr-jit bytecode --host 'x0*x1 + 2' 'sin(x0*x1)'");
  return [options] {
    const KernelOptions& kernel = options->kernel;
    if (options->host) return showKernel(kernel, KernelCode::kHostProgram, hostProgramText);
    return showKernel(kernel, KernelCode::kOneGraph,
                      [&](const KernelInput& input) { return bytecodeText(input.graphs[0], kernel); });
  };
}

Runner defineAsm(CLI::App& app) {
  auto options = std::make_shared<KernelOptions>();
  addGraphOptions(app, *options);
  addLengthOption(app, *options, kHostLength);
  app.footer(std::string(kDivision) + "Example:\n  sr-jit asm --precision f64 'x0*x1 + 2'");
  return [options] {
    return showKernel(*options, KernelCode::kHost, [&](const KernelInput& input) {
      return commented(input, "#", HostJit(options->precision, options->math).assemblyOf(input.graphs));
    });
  };
}

}  // namespace srjit
