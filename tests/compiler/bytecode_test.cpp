// Bytecode of the GPU interpreter, run by a model of its machine.
#include "compiler/bytecode.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compiler/device.h"
#include "tests/compiler/machine.h"
#include "tests/passes/graphs.h"
#include "tools/bench/population.h"

namespace srjit {
namespace {

using Kind = Handler::Kind;

std::vector<Op> everyOp() {
  std::vector<Op> ops;
  for (std::size_t i = 0; i < allOps().size(); ++i) ops.push_back(static_cast<Op>(i));
  return ops;
}

InterpreterSpec specFor(Math math, unsigned depth, Precision precision = Precision::kF64) {
  return {precision, math, everyOp(), 4, depth};
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
  const EncodeOptions options{10, 7, 100};
  const auto code = encode(dag, table, options);
  ASSERT_TRUE(code.ok()) << code.error().message;
  const std::vector<double> values = BytecodeMachine(table, options, columns, parameters).run(*code, batch.size());
  const std::vector<double> wanted = evaluate<double>(dag, columns, own);
  for (std::size_t i = 0; i < batch.size(); ++i) {
    EXPECT_TRUE(sameValue(values[i], wanted[i])) << values[i] << " is not " << wanted[i] << "\n"
                                                 << printDag(dag) << printBytecode(*code, table, options);
  }
}

TEST(Bytecode, ComputesWhatTheGraphDoes) {
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

TEST(Bytecode, LeavesCostNoTokens) {
  const HandlerTable table({Precision::kF32, Math::kFast, {Op::kAdd, Op::kMul, Op::kFma, Op::kExp}, 8, 5});
  const EncodeOptions options{3};
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
  const auto code = encode(dag, table, {10});
  ASSERT_TRUE(code.ok());
  EXPECT_EQ(code->slots, 1u);
}

TEST(Bytecode, RefusesWhatItCannotRun) {
  const HandlerTable table({Precision::kF32, Math::kFast, {Op::kAdd, Op::kMul}, 8, 5});
  const auto refused = [&](std::string_view text, const EncodeOptions& options, std::string_view passes = "hoist") {
    const Dag dag = ran(graphOf({text}, Precision::kF32), passes);
    const auto code = encode(dag, table, options);
    return code.ok() ? std::string("accepted") : code.error().message;
  };
  EXPECT_EQ(refused("x0 + sin(x1)", {2}), "this interpreter cannot run 'sin', only add mul");
  EXPECT_EQ(refused("x0 + x5", {5}), "variable x5, but 5 columns are staged");
  EXPECT_EQ(refused("x0 + 1", {1}, "none"), "a constant is left in the graph: run the 'hoist' pass before encoding");
  EncodeOptions no_slots{2};
  no_slots.max_slots = 0;
  EXPECT_EQ(refused("(x0+x1)*(x0+x1)", no_slots), "the program needs more than 0 slots for shared and deep values");
  EXPECT_EQ(refused("x0 + x1", {2}), "accepted");
}

TEST(Bytecode, NamesTheLastColumnThatATokenCanAddress) {
  for (const Precision precision : {Precision::kF32, Precision::kF64}) {
    const HandlerTable table({precision, Math::kFast, {Op::kAdd, Op::kSub}, 8, 4});
    const std::uint32_t most = DeviceToken::kAddressableBytes / columnBytes(table.spec());
    EXPECT_EQ(most, precision == Precision::kF32 ? 128U : 64U);
    const Dag dag = graphOf({"x" + std::to_string(most - 1) + " - x1"}, precision);
    const EncodeOptions fits{most};
    const auto code = encode(dag, table, fits);
    ASSERT_TRUE(code.ok()) << code.error().message;
    EXPECT_THAT(printBytecode(*code, table, fits), testing::HasSubstr("sub x" + std::to_string(most - 1) + " x1"));
    const auto refused = encode(dag, table, {most + 1});
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, Errc::kUnsupported);
    EXPECT_THAT(refused.error().message, testing::HasSubstr("a token can address 524288 bytes"));
  }
}

TEST(HandlerTable, EveryOperatorAtEveryHeightFitsAToken) {
  for (const Precision precision : {Precision::kF32, Precision::kF64}) {
    for (const Math math : {Math::kStrict, Math::kPrecise, Math::kFast}) {
      const HandlerTable table(specFor(math, 16, precision));
      EXPECT_LE(table.handlers().size(), std::size_t{DeviceToken::kHandlerMask} + 1);
    }
  }
}

TEST(HandlerTable, LongCodeIsLibraryCallsAndRoundedDivisions) {
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
    const int found = handler.kind == Kind::kApply  ? table.findApply(handler.op, handler.form, handler.height)
                      : handler.kind == Kind::kBody ? table.findBody(handler.op)
                                                    : table.find(handler.kind, handler.height, handler.argument);
    EXPECT_EQ(found, static_cast<int>(i));
  }
  EXPECT_EQ(table.findApply(Op::kAdd, "10", 2), -1) << "commutative: only one of two mirrored forms";
  EXPECT_EQ(table.find(Kind::kPushColumn, 5), -1) << "the stack is full";
}

}  // namespace
}  // namespace srjit
