// Decodes any bytes to a batch of expressions. Invariants: its graph, the graph after passes, the bytecode and the host
// program compute the same values; one walk over the tokens (BatchOptimizer), the standard pipeline, and its passes one
// at a time give the same graph; each pass that says so keeps every bit.
#include <array>
#include <cstdint>
#include <map>
#include <vector>

#include "compiler/host/program.h"
#include "compiler/interpreter/encoder.h"
#include "compiler/interpreter/handler_table.h"
#include "passes/gradient/deriver.h"
#include "passes/pass.h"
#include "tests/compiler/interpreter/machine.h"
#include "tests/fuzz/harness/graph_input.h"
#include "tests/generators/graphs.h"

namespace {

using namespace srjit;
using fuzz::GraphInput;
using fuzz::require;
constexpr std::uint32_t kVariables = GraphInput::kVariables, kParameters = GraphInput::kParameters;

struct Row {
  std::vector<double> variables, parameters;
};

template <class T>
std::vector<T> valuesIn(const Dag& dag, const Row& row) {
  const std::vector<T> variables(row.variables.begin(), row.variables.end());
  const std::vector<T> parameters(row.parameters.begin(), row.parameters.end());
  return evaluate<T>(dag, variables, parameters);
}

template <class T>
void requireSame(const std::vector<T>& got, const std::vector<T>& wanted, const char* what, const Dag& dag) {
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    require(got.size() == wanted.size() && sameBits(got[i], wanted[i]), what, [&] {
      return fmt::format("root {} is {}, not {}\n{}", i, static_cast<double>(got.at(i)), static_cast<double>(wanted[i]),
                         printDag(dag));
    });
  }
}

/// The graph of the standard passes, one at a time.
template <class T>
Dag checkPasses(const std::vector<Expression>& batch, Math math, const std::vector<Row>& rows) {
  const Pipeline pipeline = Pipeline::standard(math);
  const Dag given = Dag::fromExpressions(batch, kPrecisionOf<T>);
  Dag stepwise = given;
  for (const Pass& pass : pipeline.passes()) {
    Dag next = pass.run(stepwise, {math});
    if (pass.exactness == Exactness::kExact || math == Math::kStrict) {
      for (const Row& row : rows) {
        requireSame(valuesIn<T>(next, row), valuesIn<T>(stepwise, row), pass.name.c_str(), stepwise);
      }
    }
    stepwise = std::move(next);
  }
  const Dag whole = pipeline.run(given, {math});
  require(whole == stepwise, "a pipeline is its passes",
          [&] { return printDag(whole) + "passes\n" + printDag(stepwise); });
  // Kept, so that what an input leaves behind would be seen.
  static BatchOptimizer optimizers[] = {
      {kPrecisionOf<T>, Math::kStrict}, {kPrecisionOf<T>, Math::kPrecise}, {kPrecisionOf<T>, Math::kFast}};
  BatchOptimizer& optimizer = optimizers[math == Math::kStrict ? 0 : math == Math::kPrecise ? 1 : 2];
  const Population population(batch);
  for (std::size_t e = 0; e < population.size(); ++e) optimizer.add(population[e]);
  const Dag walked = optimizer.take();
  require(walked == whole, "one walk gives the pipeline's graph",
          [&] { return printDag(walked) + "pipeline\n" + printDag(whole); });
  if (math == Math::kStrict) {
    for (const Row& row : rows) requireSame(valuesIn<T>(whole, row), valuesIn<T>(given, row), "strict passes", given);
  }
  return whole;
}

const HandlerTable& tableFor(Precision precision, Math math, unsigned depth) {
  static std::map<std::array<unsigned, 3>, HandlerTable> tables;
  std::vector<Op> ops;
  for (std::size_t i = 0; i < allOps().size(); ++i) ops.push_back(static_cast<Op>(i));
  const std::array key = {static_cast<unsigned>(precision), static_cast<unsigned>(math), depth};
  const auto found = tables.find(key);
  if (found != tables.end()) return found->second;
  return tables.emplace(key, HandlerTable({precision, math, ops, 4, depth})).first->second;
}

void checkPrograms(const Dag& dag, const HandlerTable& table, const std::vector<Row>& rows) {
  EncodeOptions options;
  options.staged_columns = kVariables;
  options.max_slots = 1u << 16;
  const auto code = encode(dag, table, options);
  require(code.ok(), "there is bytecode", [&] { return code.error().message + '\n' + printDag(dag); });
  const HostProgram program = encodeForHost(dag).value();
  for (const Row& row : rows) {
    std::vector<double> parameters;
    for (const ParameterSource& source : dag.parameters()) {
      parameters.push_back(source.isLiteral() ? source.literal : row.parameters[source.index]);
    }
    const std::vector<double> wanted = valuesIn<double>(dag, row);
    BytecodeMachine<double> machine(table, row.variables, parameters);
    requireSame(machine.run(*code, dag.roots().size()), wanted, "bytecode", dag);
    requireSame(runHostProgram(program, row.variables, parameters), wanted, "host program", dag);
  }
}

template <class T>
void check(const std::vector<Expression>& batch, Math math, unsigned depth, const std::vector<Row>& rows) {
  checkPrograms(checkPasses<T>(batch, math, rows), tableFor(kPrecisionOf<T>, math, depth), rows);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  GraphInput input(data, size);
  const unsigned depth = 3 + input.options.below(6);
  std::vector<Row> rows = {{{0.75, -1.5, 2.25, 0.125}, {3.5, -0.625, 1.0}}};
  rows.push_back({input.numbers(kVariables), input.numbers(kParameters)});
  const std::vector<Expression> batch = input.batch();
  const std::uint8_t modes = input.options.byte();
  const Math math = kMathModes[modes / 2 % std::size(kMathModes)];
  if (modes % 2 == 0) {
    check<double>(batch, math, depth, rows);
  } else {
    check<float>(batch, math, depth, rows);
  }
  return 0;
}
