// The effect of each LLVM pass on kernels for sm_90: compiles the same code with one pass removed at a time. Time is
// that of LLVM, from graphs to PTX. The counters are means over kernels (`ptx`, `sass`: instructions; `registers`;
// `stack`: bytes of the frame), `differ`, the number of kernels whose machine code differs from that of all passes, and
// `assembler_ms`, the assembler's time per kernel. docs/history/experiments.md has a table.
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include "compiler/interpreter/kernel.h"
#include "compiler/interpreter/op_family.h"
#include "compiler/kernels/assembler.h"
#include "compiler/nvptx/options.h"
#include "compiler/nvptx/rows_kernel.h"
#include "compiler/sass/cubin_reader.h"
#include "compiler/sass/cubin_writer.h"
#include "ir/ops.h"
#include "passes/pass.h"
#include "runtime/platform/clock.h"
#include "tests/generators/population.h"
#include "tools/bench/failure.h"

namespace srjit {
namespace {

/// The compiled code: kernels of a population, or an interpreter if `population` is null. "angles" are trees of sines,
/// cosines and tangents, whose programs have branches.
struct Workload {
  const char* name;
  const char* population;  ///< null: the interpreter of arithmetic
  Math math;
  std::size_t kernels, expressions;  ///< kernels, and expressions per kernel
};
constexpr Workload kWorkloads[] = {{"mixed_fast", "mixed", Math::kFast, 4, 16},
                                   {"arithmetic_fast", "arithmetic", Math::kFast, 4, 16},
                                   {"mixed_precise", "mixed", Math::kPrecise, 2, 8},
                                   {"angles_precise", "angles", Math::kPrecise, 2, 4},
                                   {"interpreter_fast", nullptr, Math::kFast, 0, 0}};

/// Ranges of the pass names in a pipeline, parameters included, without names of pass managers.
std::vector<std::pair<std::size_t, std::size_t>> passesIn(const std::string& pipeline) {
  std::vector<std::pair<std::size_t, std::size_t>> found;
  std::size_t begin = 0;
  int parameters = 0;
  for (std::size_t i = 0; i <= pipeline.size(); ++i) {
    const char c = i < pipeline.size() ? pipeline[i] : ',';
    parameters += c == '<' ? 1 : c == '>' ? -1 : 0;
    if (parameters > 0 || (c != ',' && c != '(' && c != ')')) continue;
    if (c != '(' && i > begin) found.emplace_back(begin, i - begin);
    begin = i + 1;
  }
  return found;
}

/// A pipeline without one of its passes, and without pass managers that become empty.
std::string without(std::string pipeline, std::pair<std::size_t, std::size_t> pass) {
  pipeline.erase(pass.first, pass.second);
  for (const auto& [from, to] : {std::pair{"loop()", ""}, {"function()", ""}, {",,", ","}, {"(,", "("}, {",)", ")"}}) {
    for (std::size_t at; (at = pipeline.find(from)) != std::string::npos;) {
      pipeline.replace(at, std::string_view(from).size(), to);
    }
  }
  if (pipeline.starts_with(',')) pipeline.erase(0, 1);
  if (pipeline.ends_with(',')) pipeline.pop_back();
  return pipeline;
}

GeneratorOptions populationFor(std::string_view name) {
  if (const auto known = findPopulation(name)) return *known;
  GeneratorOptions angles = *findPopulation("arithmetic");
  angles.max_nodes = angles.min_nodes;
  angles.ops = {Op::kAdd, Op::kMul, Op::kSin, Op::kCos, Op::kTan};
  return angles;
}

/// The modules of a workload, one kernel each.
class Subject {
 public:
  explicit Subject(const Workload& workload) : options_{.math = workload.math, .loss = LossSpec{}} {
    if (workload.population == nullptr) {
      const std::span<const Op> ops = opsOf(OpFamily::kArithmetic);
      options_.rows_per_thread = 8;
      options_.loss = LossSpec{};
      table_.emplace(InterpreterSpec{.precision = Precision::kF32,
                                     .math = workload.math,
                                     .ops = {ops.begin(), ops.end()},
                                     .rows_per_thread = options_.rows_per_thread});
      return;
    }
    options_.min_blocks = 4;
    ExpressionGenerator generator(populationFor(workload.population));
    for (std::size_t g = 0; g < workload.kernels; ++g) {
      graphs_.push_back(
          Pipeline::standard(workload.math)
              .run(Dag::fromExpressions(generator.batch(workload.expressions), Precision::kF32), {workload.math}));
    }
  }

  std::vector<std::string> ptx(const LlvmPasses& passes) const {
    if (table_) return {must(interpreterPtx(*table_, options_, passes))};
    std::vector<std::string> modules;
    for (const Dag& graph : graphs_) modules.push_back(must(rowsPtx({&graph, 1}, options_, passes)));
    return modules;
  }

 private:
  DeviceOptions options_;
  std::optional<HandlerTable> table_;
  std::vector<Dag> graphs_;
};

const Subject& subjectOf(const Workload& workload) {
  static std::map<std::string, Subject> made;
  return made.try_emplace(workload.name, workload).first->second;
}

// Lines of PTX that end with a semicolon and are no declarations.
std::size_t instructionsIn(const std::string& ptx) {
  std::size_t count = 0;
  for (std::size_t begin = 0, end; (end = ptx.find('\n', begin)) != std::string::npos; begin = end + 1) {
    const std::size_t first = ptx.find_first_not_of(" \t", begin);
    count += end > begin && ptx[end - 1] == ';' && ptx[first] != '.' ? 1 : 0;
  }
  return count;
}

/// Modules and their assembled code.
struct Assembled {
  std::vector<std::string> modules;
  double seconds = 0, ptx = 0, sass = 0, registers = 0, stack = 0;
  std::vector<std::vector<sass::Word>> code;
};

Assembled assembleAll(std::vector<std::string> modules) {
  Assembled all;
  const Stopwatch watch;
  std::vector<Cubin> cubins;
  for (const std::string& ptx : modules) cubins.push_back(must(assemble(ptx, "sm_90")));
  all.seconds = watch.seconds();
  for (const std::string& ptx : modules) all.ptx += static_cast<double>(instructionsIn(ptx));
  for (const Cubin& cubin : cubins) {
    for (const KernelFacts& facts : cubin.kernels) {
      all.registers += facts.registers;
      all.stack += facts.stack_bytes;
    }
    std::vector<sass::Word> code;
    for (const CubinKernel& kernel : must(readCubin(cubin.image)).kernels) {
      all.sass += static_cast<double>(kernel.body().size());
      code.insert(code.end(), kernel.code.begin(), kernel.code.end());
    }
    all.code.push_back(std::move(code));
  }
  all.modules = std::move(modules);
  return all;
}

const Assembled& standardOf(const Workload& workload) {
  static std::map<std::string, Assembled> made;
  const auto found = made.find(workload.name);
  if (found != made.end()) return found->second;
  return made.emplace(workload.name, assembleAll(subjectOf(workload).ptx({}))).first->second;
}

void measure(benchmark::State& state, const Workload& workload, const LlvmPasses& passes) {
  const Status done = caught([&] {
    const Subject& subject = subjectOf(workload);
    std::vector<std::string> modules = subject.ptx(passes);  // warms up
    for (auto _ : state) modules = subject.ptx(passes);
    const Assembled& standard = standardOf(workload);
    // Equal PTX gives equal machine code.
    const Assembled made = modules == standard.modules ? standard : assembleAll(modules);
    const auto kernels = static_cast<double>(modules.size());
    std::size_t differ = 0;
    for (std::size_t i = 0; i < modules.size(); ++i) differ += made.code[i] != standard.code[i] ? 1 : 0;
    state.counters["assembler_ms"] = made.seconds * 1e3 / kernels;
    state.counters["ptx"] = made.ptx / kernels;
    state.counters["sass"] = made.sass / kernels;
    state.counters["registers"] = made.registers / kernels;
    state.counters["stack"] = made.stack / kernels;
    state.counters["differ"] = static_cast<double>(differ);
  });
  if (!done) state.SkipWithError(done.error().message.c_str());
}

void add(const Workload& workload, const std::string& name, const LlvmPasses& passes) {
  benchmark::RegisterBenchmark(fmt::format("llvmPasses/{}/{}", workload.name, name).c_str(),
                               [workload, passes](benchmark::State& state) { measure(state, workload, passes); })
      ->Unit(benchmark::kMillisecond);
}

const bool kLlvmRegistered = [] {
  for (const Workload& workload : kWorkloads) {
    add(workload, "all", {});
    const std::string all = LlvmPasses().kernels;
    std::size_t number = 0;
    for (const auto& pass : passesIn(all)) {
      LlvmPasses passes;
      passes.kernels = without(all, pass);
      const std::string name = all.substr(pass.first, std::min(pass.second, all.find('<', pass.first) - pass.first));
      add(workload, fmt::format("without_{}_{}", ++number, name), passes);
    }
    for (const unsigned level : {0U, 1U, 3U}) {
      LlvmPasses passes;
      passes.code_generation = level;
      add(workload, fmt::format("code_generation_{}", level), passes);
    }
  }
  return true;
}();

}  // namespace
}  // namespace srjit
