// Bytecode of the GPU interpreter, run by a model of its machine.
#include "compiler/interpreter/encoder.h"
#include "compiler/interpreter/handler_table.h"

#include <bit>
#include <memory>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compiler/nvptx/options.h"
#include "passes/expression_optimizer.h"
#include "passes/gradient/deriver.h"
#include "tests/compiler/interpreter/machine.h"
#include "tests/generators/graphs.h"
#include "tests/generators/population.h"

namespace srjit {
namespace {

using Kind = Handler::Kind;

InterpreterSpec specFor(Math math, unsigned depth, Precision precision = Precision::kF64) {
  return {precision, math, allOperators(), 4, depth};
}

EncodeOptions staging(std::uint32_t columns) {
  EncodeOptions options;
  options.staged_columns = columns;
  options.max_slots = 1u << 16;
  return options;
}

void expectSameAsGraph(const std::vector<Expression>& batch, Math math, unsigned depth, std::uint64_t seed) {
  const Dag dag = Pipeline::standard(math).run(Dag::fromExpressions(batch, Precision::kF64), {math});
  Random random(seed);
  std::vector<double> columns;
  for (int i = 0; i < 10; ++i) columns.push_back(random.between(-3.0, 3.0));
  const std::vector<double> own = {0.75, -1.25, 2.5};
  std::vector<double> parameters;
  for (const ParameterSource& source : dag.parameters()) {
    parameters.push_back(source.isLiteral() ? source.literal : own[source.index]);
  }
  const HandlerTable table(specFor(math, depth));
  const EncodeOptions options = staging(10);
  const auto code = encode(dag, table, options);
  ASSERT_TRUE(code.ok()) << code.error().message;
  const std::vector<double> values = BytecodeMachine(table, columns, parameters).run(*code, batch.size());
  const std::vector<double> wanted = evaluate<double>(dag, columns, own);
  for (std::size_t i = 0; i < batch.size(); ++i) {
    EXPECT_TRUE(sameBits(values[i], wanted[i])) << values[i] << " is not " << wanted[i] << "\n"
                                                << printDag(dag) << printBytecode(*code, table, options);
  }
}

TEST(Bytecode, IsTheSameByACopyOfTheTable) {
  const auto batch = ExpressionGenerator({.seed = 5, .min_nodes = 20, .max_nodes = 40, .variables = 10}).batch(20);
  const Dag dag = Pipeline::standard(Math::kFast).run(Dag::fromExpressions(batch, Precision::kF64), {Math::kFast});
  auto original = std::make_unique<HandlerTable>(specFor(Math::kFast, 4));
  const auto expected = encode(dag, *original, staging(10));
  const HandlerTable copy = *original;
  original.reset();
  const auto code = encode(dag, copy, staging(10));
  ASSERT_TRUE(code.ok() && expected.ok());
  ASSERT_EQ(code->tokens.size(), expected->tokens.size());
  for (std::size_t t = 0; t < code->tokens.size(); ++t) {
    EXPECT_EQ(code->tokens[t].code, expected->tokens[t].code);
    EXPECT_EQ(code->tokens[t].argument, expected->tokens[t].argument);
  }
}

TEST(Bytecode, ComputesTheGraph) {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    GeneratorOptions options{.seed = seed, .min_nodes = 1, .max_nodes = 40, .variables = 10, .parameters = 3};
    options.parameter_probability = 0.2;
    const auto batch = ExpressionGenerator(options).batch(1 + seed % 4);
    const Math math = seed % 3 == 0 ? Math::kStrict : seed % 3 == 1 ? Math::kPrecise : Math::kFast;
    expectSameAsGraph(batch, math, 3 + static_cast<unsigned>(seed % 5), seed);
  }
}

TEST(Bytecode, RunsDeepTreesOnThreeRegisters) {
  // A balanced tree of 2^9 leaves needs ten registers; a chain of 50,000 nodes needs one.
  std::string tree = "x0";
  std::vector<Token> tokens;
  const auto grow = [&](auto&& self, int depth) -> void {
    if (depth == 0) {
      tokens.push_back(Token::variable(static_cast<std::uint32_t>(tokens.size() % 10)));
      return;
    }
    self(self, depth - 1);
    self(self, depth - 1);
    tokens.push_back(Token::operation(depth % 2 == 0 ? Op::kSub : Op::kDiv));
  };
  grow(grow, 9);
  expectSameAsGraph({Expression::create(tokens).value()}, Math::kStrict, 3, 1);

  std::vector<Token> chain{Token::variable(0)};
  for (int i = 0; i < 25000; ++i) {
    chain.push_back(Token::variable(1));
    chain.push_back(Token::operation(i % 2 == 0 ? Op::kSub : Op::kAdd));
  }
  expectSameAsGraph({Expression::create(chain).value()}, Math::kStrict, 3, 2);
}

// Random trees of this length repeat hundreds of small values, far more than the slots.
TEST(Bytecode, ProgramsOfAHundredThousandTokensFitFewSlots) {
  for (const std::uint64_t seed : {1, 2, 3}) {
    GeneratorOptions options{.seed = seed, .min_nodes = 100'000, .max_nodes = 100'000, .variables = 10};
    if (seed > 1) options.ops = {Op::kAdd, Op::kSub, Op::kMul, Op::kAbs};
    const Expression expression = ExpressionGenerator(options).next();
    const Math math = seed == 3 ? Math::kFast : Math::kStrict;
    const Dag dag = Pipeline::standard(math).run(Dag::fromExpressions({&expression, 1}, Precision::kF64), {math});
    Random random(seed);
    std::vector<double> columns, parameters;
    for (int i = 0; i < 10; ++i) columns.push_back(random.between(-3.0, 3.0));
    for (const ParameterSource& source : dag.parameters()) parameters.push_back(source.literal);
    const HandlerTable table(specFor(math, 4));
    EncodeOptions few = staging(10);
    few.max_slots = 16;
    const auto code = encode(dag, table, few);
    ASSERT_TRUE(code.ok()) << code.error().message;
    EXPECT_LE(code->slots, 16U);
    EXPECT_GT(code->tokens.size(), 30'000U);
    EXPECT_LT(code->tokens.size(), 200'000U);
    const double value = BytecodeMachine(table, columns, parameters).run(*code, 1)[0];
    EXPECT_TRUE(sameBits(value, evaluate<double>(dag, columns, {})[0])) << value;
  }
}

TEST(Bytecode, RejectsExponentialRematerialization) {
  // Each value is used four times by the next two: with 40 levels of sharing, rematerialization exceeds the range of
  // token numbers.
  Dag dag(Precision::kF64);
  std::vector<NodeId> values;
  for (std::uint32_t i = 0; i < 20; ++i) values.push_back(dag.variable(i));
  for (int level = 0; level < 40; ++level) {
    std::vector<NodeId> next;
    for (std::size_t i = 0; i < values.size(); ++i) {
      next.push_back(dag.apply(Op::kMul, std::array{values[i], values[(i + 1) % values.size()]}));
    }
    values = next;
  }
  NodeId sum = values[0];
  for (std::size_t i = 1; i < values.size(); ++i) sum = dag.apply(Op::kAdd, std::array{sum, values[i]});
  dag.addRoot(sum);
  const HandlerTable table(specFor(Math::kStrict, 4));
  EncodeOptions few = staging(20);
  few.max_slots = 8;
  const auto code = encode(dag, table, few);
  ASSERT_FALSE(code.ok());
  EXPECT_EQ(code.error().code, Errc::kUnsupported);
  few.max_slots = 64;
  EXPECT_TRUE(encode(dag, table, few).ok());
}

TEST(Bytecode, LeavesNeedNoTokens) {
  const HandlerTable table({Precision::kF32, Math::kFast, {Op::kAdd, Op::kMul, Op::kFma, Op::kExp}, 8, 5});
  const EncodeOptions options = staging(3);
  const Dag dag = Pipeline::standard(Math::kFast)
                      .run(Dag::fromExpressions(std::vector{infix("exp(x0*x1+x2)*2")}, Precision::kF32), {Math::kFast});
  const auto code = encode(dag, table, options);
  ASSERT_TRUE(code.ok());
  EXPECT_EQ(printBytecode(*code, table, options),
            "   0  push x0\n"
            "   1  fma s0 x1 x2\n"
            "   1  exp s0\n"
            "   1  mul s0 parameter0\n"
            "   1  end root0\n");
}

TEST(Bytecode, ReusesSlotsAfterTheirLastUse) {
  // Ten expressions, each with one shared subtree of its own: one slot serves all.
  std::vector<Expression> batch;
  for (int i = 0; i < 10; ++i) {
    const std::string shared = "sin(x" + std::to_string(i) + ")";
    batch.push_back(infix(shared + "*(1+" + shared + ")"));
  }
  const Dag dag = Pipeline::standard(Math::kStrict).run(Dag::fromExpressions(batch, Precision::kF64), {Math::kStrict});
  const HandlerTable table(specFor(Math::kStrict, 5));
  const auto code = encode(dag, table, staging(10));
  ASSERT_TRUE(code.ok());
  EXPECT_EQ(code->slots, 1u);
}

/// A sum of `count` variables in a balanced tree, which needs one register per level.
std::string balancedSum(int first, int count) {
  if (count == 1) return "x" + std::to_string(first);
  return "(" + balancedSum(first, count / 2) + "+" + balancedSum(first + count / 2, count / 2) + ")";
}

TEST(Bytecode, RejectsUnsupportedPrograms) {
  const HandlerTable table({Precision::kF32, Math::kFast, {Op::kAdd, Op::kMul}, 8, 5});
  const auto refused = [&](std::string_view text, const EncodeOptions& options, std::string_view passes = "hoist") {
    const Dag dag = ran(graphOf({text}, Precision::kF32), passes);
    const auto code = encode(dag, table, options);
    return code.ok() ? std::string("accepted") : code.error().message;
  };
  EXPECT_EQ(refused("x0 + sin(x1)", staging(2)), "this interpreter cannot run 'sin', only add mul");
  EXPECT_EQ(refused("x0 + x5", staging(5)), "variable x5, but 5 columns are staged");
  EXPECT_EQ(refused("x0 + 1", staging(1), "none"),
            "a constant is left in the graph: run the 'hoist' pass before encoding");
  EncodeOptions no_slots = staging(64);
  no_slots.max_slots = 0;
  EXPECT_EQ(refused(balancedSum(0, 64), no_slots), "the program needs more than 0 slots for shared and deep values");
  EXPECT_EQ(refused("(x0+x1)*(x0+x1)", no_slots), "accepted") << "shared values are rematerialized";
  EXPECT_EQ(refused("x0 + x1", staging(2)), "accepted");
}

TEST(Bytecode, EncodesTheLargestColumnNumber) {
  const HandlerTable table({Precision::kF32, Math::kFast, {Op::kAdd, Op::kSub}, 8, 4});
  const std::uint32_t most = DeviceToken::kColumnMask + 1;
  const std::string last = "x" + std::to_string(most - 1);
  const Dag dag = graphOf({last + " - x1", "(x0+" + last + ") - (x0+" + last + ")*1"}, Precision::kF32);
  const EncodeOptions fits = staging(most);
  Bytecode code;
  Encoder encoder(table.numbers());
  const std::uint32_t first_root[] = {dag.roots()[0]}, number[] = {0};
  ASSERT_TRUE(encoder.encode(dag, first_root, number, fits, code).isNone());
  EXPECT_THAT(printBytecode(code, table, fits), testing::HasSubstr("sub " + last + " x1"));
  const EncodeOptions too_many = staging(most + 1);
  const Status refused = statusOf(encoder.encode(dag, first_root, number, too_many, code), table, too_many);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Errc::kUnsupported);
  EXPECT_EQ(refused.error().message, "262145 staged columns: a token can name 262144");
  EXPECT_FALSE(encode(graphOf({balancedSum(0, 64)}, Precision::kF32), table, fits).ok())
      << "no number is left for a slot";
}

TEST(Bytecode, MapsColumnsParametersAndOutputs) {
  const HandlerTable table({Precision::kF32, Math::kFast, {Op::kAdd, Op::kSub, Op::kMul}, 8, 4});
  const Dag dag = ran(graphOf({"x7*2.5 - x3", "x3 + x9"}, Precision::kF32), "hoist");
  std::vector<std::uint32_t> columns(8, EncodeOptions::kNotStaged);
  columns[3] = 0;
  columns[7] = 1;
  const std::uint32_t parameters[] = {42};
  EncodeOptions options = staging(2);
  options.columns = columns;
  options.parameters = parameters;
  Encoder encoder(table.numbers());
  Bytecode code;
  const std::uint32_t output[] = {1000};
  ASSERT_TRUE(encoder.encode(dag, dag.roots().first(1), output, options, code).isNone());
  EXPECT_EQ(printBytecode(code, table, options),
            "   0  mul x1 parameter42\n"
            "   1  sub s0 x0\n"
            "   1  end root1000\n");
  const Status refused = statusOf(encoder.encode(dag, dag.roots().subspan(1), output, options, code), table, options);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message, "variable x9 is not among the columns that are staged");
  EXPECT_EQ(code.tokens.size(), 3U) << "tokens encoded before are unchanged";
}

TEST(Bytecode, OfARootDoesNotDependOnOtherRoots) {
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    GeneratorOptions generator{.seed = seed, .min_nodes = 1, .max_nodes = 30, .variables = 6};
    const auto batch = ExpressionGenerator(generator).batch(20);
    const Math math = seed % 2 == 0 ? Math::kPrecise : Math::kFast;
    const HandlerTable table(specFor(math, 3 + static_cast<unsigned>(seed % 3)));
    const EncodeOptions options = staging(6);
    const Dag together = Pipeline::standard(math).run(Dag::fromExpressions(batch, Precision::kF64), {math});
    Encoder encoder(table.numbers());
    for (std::size_t i = 0; i < batch.size(); ++i) {
      const Dag alone = Pipeline::standard(math).run(Dag::fromExpressions({&batch[i], 1}, Precision::kF64), {math});
      // Literals have other numbers in a graph of their own, so they are compared by value.
      std::vector<std::uint32_t> of_alone, of_together;
      const auto numbersOf = [](const Dag& dag, std::vector<std::uint32_t>& numbers) {
        for (const ParameterSource& source : dag.parameters()) {
          numbers.push_back(static_cast<std::uint32_t>(std::bit_cast<std::uint64_t>(source.literal) >> 20));
        }
      };
      numbersOf(alone, of_alone);
      numbersOf(together, of_together);
      EncodeOptions options_alone = options, options_together = options;
      options_alone.parameters = of_alone;
      options_together.parameters = of_together;
      Bytecode code;
      const std::uint32_t output[] = {0};
      ASSERT_TRUE(encoder.encode(together, together.roots().subspan(i, 1), output, options_together, code).isNone());
      EXPECT_EQ(printBytecode(code, table, options),
                printBytecode(*encode(alone, table, options_alone), table, options));
    }
  }
}

TEST(Bytecode, OutputsKeepTheOrderOfRoots) {
  const HandlerTable table({Precision::kF32, Math::kFast, {Op::kAdd, Op::kMul}, 8, 4});
  const Dag dag = graphOf({"(x0+x1)*x2", "x0+x1", "x1", "x0+x1"}, Precision::kF32);
  const auto code = encode(dag, table, staging(3));
  ASSERT_TRUE(code.ok()) << code.error().message;
  EXPECT_EQ(printBytecode(*code, table, staging(3)),
            "   0  add x0 x1\n"
            "   1  store slot0\n"
            "   0  mul slot0 x2\n"
            "   1  end root0\n"
            "   0  push slot0\n"
            "   1  end root1\n"
            "   0  push x1\n"
            "   1  end root2\n"
            "   0  push slot0\n"
            "   1  end root3\n");
}

TEST(HandlerTable, EveryOperatorAtEveryHeightFitsAToken) {
  for (const Precision precision : {Precision::kF32, Precision::kF64}) {
    for (const Math math : {Math::kStrict, Math::kPrecise, Math::kFast}) {
      const HandlerTable table(specFor(math, kMostInterpreterDepth, precision));
      EXPECT_LE(table.handlers().size(), std::size_t{DeviceToken::kHandlerMask} + 1);
    }
  }
}

TEST(HandlerTable, LongOperatorsAreFunctionsAndRoundedDivisions) {
  EXPECT_TRUE(hasLongCode(Op::kSin, Precision::kF32, Math::kPrecise));
  EXPECT_FALSE(hasLongCode(Op::kSin, Precision::kF32, Math::kFast));
  EXPECT_TRUE(hasLongCode(Op::kSin, Precision::kF64, Math::kFast)) << "f64 has no approximate instructions";
  EXPECT_TRUE(hasLongCode(Op::kDiv, Precision::kF32, Math::kPrecise));
  EXPECT_FALSE(hasLongCode(Op::kDiv, Precision::kF32, Math::kFast));
  for (const Math math : {Math::kStrict, Math::kPrecise, Math::kFast}) {
    for (const Op op : {Op::kAdd, Op::kMul, Op::kFma, Op::kNeg, Op::kIf, Op::kFloor}) {
      EXPECT_FALSE(hasLongCode(op, Precision::kF64, math)) << infoOf(op).name;
    }
  }
}

TEST(HandlerTable, FindsEveryHandlerUnderItsNumber) {
  const HandlerTable table(specFor(Math::kPrecise, 5));
  for (std::size_t i = 0; i < table.handlers().size(); ++i) {
    const Handler& handler = table.handlers()[i];
    const int found = handler.kind == Kind::kApply  ? table.findApply(handler.op, handler.operands, handler.height)
                      : handler.kind == Kind::kBody ? table.findBody(handler.op)
                                                    : table.find(handler.kind, handler.height, handler.argument);
    EXPECT_EQ(found, static_cast<int>(i));
  }
  EXPECT_EQ(table.findApply(Op::kAdd, "10", 2), -1) << "commutative: only one of two mirrored forms";
  EXPECT_EQ(table.find(Kind::kPushColumn, 5), -1) << "the stack is full";
}

/// What tokens mean: parameters as the bits of constants, or of expressions' own.
std::vector<std::uint64_t> meaningOf(std::span<const DeviceToken> tokens,
                                     const std::vector<std::uint64_t>& parameters) {
  std::vector<std::uint64_t> meaning;
  for (const DeviceToken& token : tokens) {
    meaning.push_back(token.code);
    const bool is_parameter = token.code >> DeviceToken::kArgumentShift == DeviceToken::kParameter;
    meaning.push_back(is_parameter ? parameters.at(token.argument) : token.argument);
  }
  return meaning;
}

std::uint64_t meaningOf(const ParameterSource& source) {
  return source.isLiteral() ? std::bit_cast<std::uint64_t>(source.literal) : source.index;
}

/// Encodes `graph`, of one expression, and its roots in `scheduled`, and expects the same.
void expectEqualCode(Encoder& encoder, const ExpressionGraph& graph, const Dag& scheduled, std::uint32_t slots,
                     const std::string& text) {
  EncodeOptions options = staging(5);
  options.max_slots = slots;
  std::vector<std::uint32_t> outputs(scheduled.roots().size());
  std::iota(outputs.begin(), outputs.end(), 7U);
  Bytecode of_graph, of_dag;
  const EncodeFault a = encoder.encode(graph, outputs, options, of_graph);
  const EncodeFault b = encoder.encode(scheduled, scheduled.roots(), outputs, options, of_dag);
  ASSERT_EQ(a.isNone(), b.isNone()) << text;
  if (!a.isNone()) return;
  std::vector<std::uint64_t> graph_parameters, dag_parameters;
  for (const NodeId id : of_graph.parameters) {
    const Node& node = graph.dag.node(id);
    const bool is_constant = node.kind == Token::Kind::kConstant;
    graph_parameters.push_back(is_constant ? std::bit_cast<std::uint64_t>(node.value)
                                           : meaningOf(graph.dag.parameters()[node.index]));
  }
  for (const ParameterSource& source : scheduled.parameters()) dag_parameters.push_back(meaningOf(source));
  ASSERT_EQ(meaningOf(of_graph.tokens, graph_parameters), meaningOf(of_dag.tokens, dag_parameters)) << text;
  ASSERT_EQ(of_graph.slots, of_dag.slots);
}

std::vector<Expression> expressionsToEncode(std::uint64_t seed, std::size_t count) {
  GeneratorOptions generator{.seed = seed, .min_nodes = 1, .max_nodes = 60, .variables = 3};
  generator.parameters = 2;
  generator.constant_probability = 0.2;
  generator.parameter_probability = 0.2;
  return ExpressionGenerator(generator).batch(count);
}

TEST(Bytecode, OfAnOptimizersGraphIsThatOfTheScheduledOne) {
  for (const unsigned depth : {3U, 4U, 5U}) {
    for (const std::uint32_t slots : {1U, 3U, 64U}) {
      for (const Math math : kMathModes) {
        const HandlerTable table(specFor(math, depth));
        Encoder encoder(table.numbers());  // for both, in turns
        Deriver optimizer(Precision::kF64, math);
        BatchOptimizer batch(Precision::kF64, math);
        const Population population(expressionsToEncode(depth * 7 + slots, 300));
        for (std::uint32_t e = 0; e < population.size(); ++e) {
          batch.add(population[e]);
          expectEqualCode(encoder, optimizer.run(population[e], 0, {}), batch.take(), slots,
                          print(population[e].expression(), Language::kInfix));
        }
      }
    }
  }
}

TEST(Bytecode, OfWhatIsDerivedOfAnExpressionIsThatOfTheScheduledGraph) {
  const DerivedLoss scaled{.term = LossTerm::kMoments, .constants = {.target_centre = 0.75}};
  const DerivedLoss huber{.term = LossTerm::kHuber, .constants = {.tuning = 1}};
  using enum Quantity;
  const Derivation derivations[] = {
      {.quantity = kLoss, .columns = 3, .loss = scaled},
      {.quantity = kLoss, .columns = 3, .loss = scaled, .weighted = true, .skips_invalid = true},
      {.quantity = kLoss, .columns = 2, .loss = huber},
      {.quantity = kGradient, .columns = 3, .loss = scaled},
      {.quantity = kNormalEquations, .columns = 3, .weighted = true},
      {.quantity = kReweighted, .columns = 3, .loss = huber, .skips_invalid = true},
      {.quantity = kJacobian, .columns = 3}};
  for (const std::uint32_t slots : {3U, 64U}) {
    for (const Math math : kMathModes) {
      const HandlerTable table(specFor(math, 4));
      Encoder encoder(table.numbers());
      Deriver optimizer(Precision::kF64, math);
      for (const Derivation& derivation : derivations) {
        const bool simplify = slots == 64;
        BatchOptimizer batch(Precision::kF64, math, derivation, simplify);
        const Population population(expressionsToEncode(slots, 100));
        for (std::uint32_t e = 0; e < population.size(); ++e) {
          batch.add(population[e]);
          const Dag scheduled = batch.take();
          const ExpressionGraph graph = optimizer.run(population[e], 0, derivation, simplify);
          ASSERT_EQ(graph.roots.size(), derivation.roots(population[e].parameterCount()));
          expectEqualCode(encoder, graph, scheduled, slots, print(population[e].expression(), Language::kInfix));
        }
      }
    }
  }
}

TEST(Bytecode, JoinsSumsOfAdjacentOutputs) {
  const HandlerTable table({Precision::kF32, Math::kFast, {Op::kAdd, Op::kMul}, 8, 4});
  EncodeOptions options = staging(3);
  options.joins_sums = true;
  const Dag dag = graphOf({"x0*x1", "x0+x1", "x2", "x2*x2", "x1*x2", "(x0+x2)*x1"}, Precision::kF32);
  Bytecode code;
  const std::uint32_t outputs[] = {3, 4, 5, 6, 7, 9};
  ASSERT_TRUE(Encoder(table.numbers()).encode(dag, dag.roots(), outputs, options, code).isNone());
  EXPECT_EQ(printBytecode(code, table, options),
            "   0  keep sum0 x0 x1\n"
            "   0  add x0 x1\n"
            "   1  keep sum1\n"
            "   0  push x2\n"
            "   1  keep sum2\n"
            "   0  keep sum3 x2 x2\n"
            "   0  end root3 to root6\n"
            "   0  mul x1 x2\n"
            "   1  end root7\n"
            "   0  add x0 x2\n"
            "   1  mul s0 x1\n"
            "   1  end root9\n");
}

/// The outputs of a graph over five columns; none if it cannot be encoded.
std::vector<double> outputsOf(Encoder& encoder, const HandlerTable& table, const ExpressionGraph& graph,
                              std::uint32_t slots, bool joins_sums) {
  const std::vector<double> columns = {0.5, -1.25, 2, 0.75, 1.5};
  std::vector<std::uint32_t> outputs(graph.roots.size());
  std::iota(outputs.begin(), outputs.end(), 0U);
  EncodeOptions options = staging(static_cast<std::uint32_t>(columns.size()));
  options.max_slots = slots;
  options.joins_sums = joins_sums;
  Bytecode code;
  if (!encoder.encode(graph, outputs, options, code).isNone()) return {};
  std::vector<double> parameters;
  for (const NodeId id : code.parameters) {
    const Node& node = graph.dag.node(id);
    parameters.push_back(node.kind == Token::Kind::kConstant ? node.value : 0.75 + node.index);
  }
  return BytecodeMachine<double>(table, columns, parameters).run(code, outputs.size());
}

// With few slots values are computed at each use, of which a later user may send one to a slot after all.
TEST(Bytecode, OutputsDependNeitherOnSlotsNorOnJoinedSums) {
  const Derivation derivation{.quantity = Quantity::kNormalEquations, .columns = 3, .weighted = true};
  const Population population(expressionsToEncode(31, 400));
  const HandlerTable table(specFor(Math::kPrecise, 4));
  Encoder encoder(table.numbers());
  Deriver optimizer(Precision::kF64, Math::kPrecise);
  std::size_t encoded = 0;
  for (std::uint32_t e = 0; e < population.size(); ++e) {
    const ExpressionGraph graph = optimizer.run(population[e], 0, derivation);
    const std::vector<double> wanted = outputsOf(encoder, table, graph, 64, false);
    ASSERT_FALSE(wanted.empty());
    for (const std::uint32_t slots : {2U, 3U, 5U, 64U}) {
      for (const bool joins : {false, true}) {
        const std::vector<double> outputs = outputsOf(encoder, table, graph, slots, joins);
        if (outputs.empty()) continue;
        ++encoded;
        ASSERT_TRUE(std::ranges::equal(outputs, wanted, [](double x, double y) { return sameBits(x, y); }))
            << print(population[e].expression(), Language::kInfix) << ", " << slots << " slots";
      }
    }
  }
  EXPECT_GT(encoded, 6 * population.size());
}

}  // namespace
}  // namespace srjit
