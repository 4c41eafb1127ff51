// Faulty custom passes: only the expressions that share a graph with the cause fail.
#include <new>
#include <stdexcept>

#include <fmt/format.h>

#include "ir/ops.h"
#include "runtime/evaluation/ranges.h"
#include "tests/generators/workload.h"

namespace srjit {
namespace {

/// Applies `change` to graphs that use x7; others stay as they are.
Pipeline pipelineOf(const std::string& name, const std::function<Dag(const Dag&)>& change) {
  const auto run = [change](const Dag& dag, const PassContext&) {
    return dag.variableCount() == 8 ? change(dag) : dag;
  };
  EXPECT_TRUE(registerPass({name, run, Exactness::kExact, "a pass of a test"}).ok());
  return Pipeline::parse("standard," + name + ",schedule", Math::kPrecise).value();
}

/// Two graphs of equal size, of which the second uses x7; checks that the first has its values and gives the message of
/// the second.
std::string messageOfSecond(const Pipeline& pipeline, Tier tier) {
  const std::size_t count = tier == Tier::kCompile ? kCompiledPerRange : kInterpretedPerRange;
  const Engine engine = Engine::create({}).value();
  std::vector<Expression> expressions(count,
                                      build({Token::variable(0), Token::parameter(0), Token::operation(Op::kAdd)}));
  expressions.resize(2 * count, build({Token::variable(7), Token::parameter(0), Token::operation(Op::kMul)}));
  const std::vector<std::vector<double>> columns(8, {1, 2});
  const Workload w{.expressions = expressions,
                   .columns = columns,
                   .target = {1, 2},
                   .weights = {},
                   .parameters = std::vector<double>(2 * count, 3.0)};
  const Program program = engine.compile(expressions, {.tier = tier, .pipeline = pipeline});
  std::vector<Failure> failures;
  const std::vector<double> out = predict(engine, program, engine.upload(w.view()).value(), w.parameters, &failures);
  EXPECT_EQ(failures.size(), program.failures().size());
  if (failures.size() != count) return fmt::format("{} failures", failures.size());
  for (std::size_t i = 0; i < count; ++i) {
    EXPECT_EQ(failures[i].expression, count + i);
    EXPECT_EQ(failures[i].error.code, Errc::kInvalid);
    EXPECT_EQ(failures[i].error.message, failures[0].error.message);
    EXPECT_EQ(out[2 * i], 4.0);
    EXPECT_EQ(out[2 * i + 1], 5.0);
    EXPECT_TRUE(std::isnan(out[2 * (count + i)]));
  }
  return failures[0].error.message;
}

void expectMessage(const Pipeline& pipeline, std::string_view compiled, std::string_view interpreted) {
  EXPECT_EQ(messageOfSecond(pipeline, Tier::kCompile), compiled);
  EXPECT_EQ(messageOfSecond(pipeline, Tier::kInterpret), interpreted);
}

TEST(CustomPass, ExceptionFailsOnlyItsGraph) {
  const Pipeline throws = pipelineOf("throws", [](const Dag&) -> Dag { throw std::runtime_error("no luck"); });
  expectMessage(throws, "pass throws: no luck", "pass throws: no luck");
  const Pipeline number = pipelineOf("throws-number", [](const Dag&) -> Dag { throw 7; });
  expectMessage(number, "pass throws-number: an exception without a message",
                "pass throws-number: an exception without a message");
}

TEST(CustomPass, ExhaustedMemoryFailsEveryExpression) {
  const Pipeline exhausts = pipelineOf("exhausts", [](const Dag&) -> Dag { throw std::bad_alloc(); });
  const std::vector<Expression> expressions{build({Token::variable(0)}), build({Token::variable(7)})};
  const Engine engine = Engine::create({}).value();
  for (const Tier tier : {Tier::kInterpret, Tier::kCompile}) {
    const Program program = engine.compile(expressions, {.tier = tier, .pipeline = exhausts});
    ASSERT_EQ(program.failures().size(), 2U);
    for (std::size_t e = 0; e < 2; ++e) {
      EXPECT_EQ(program.failures()[e].expression, e);
      EXPECT_EQ(program.failures()[e].error.code, Errc::kMachine);
      EXPECT_EQ(program.failures()[e].error.message, "out of memory");
    }
  }
}

TEST(CustomPass, ChangedRootCountFailsOnlyItsGraph) {
  const Pipeline drops = pipelineOf("drops", [](const Dag& dag) { return Dag(dag.precision()); });
  expectMessage(drops, "pass drops: a graph of 0 roots for 16 expressions",
                "pass drops: a graph of 0 roots for 8 expressions");
  const Pipeline adds = pipelineOf("adds", [](Dag dag) {
    dag.addRoot(dag.variable(7));
    return dag;
  });
  expectMessage(adds, "pass adds: a graph of 17 roots for 16 expressions",
                "pass adds: a graph of 9 roots for 8 expressions");
}

TEST(CustomPass, UnknownLeafFailsOnlyItsGraph) {
  const auto inventing = [](const std::string& name, NodeId (*leaf)(Dag&)) {
    return pipelineOf(name, [leaf](const Dag& dag) {
      Dag made(dag.precision());
      for (std::size_t i = 0; i < dag.roots().size(); ++i) made.addRoot(leaf(made));
      return made;
    });
  };
  const std::string variable = "pass variable: variable x8, which no expression uses";
  expectMessage(inventing("variable", [](Dag& dag) { return dag.variable(8); }), variable, variable);
  const std::string index = "pass index: parameter p1 of expression 0, which does not exist";
  expectMessage(inventing("index", [](Dag& dag) { return dag.parameter(0, 1); }), index, index);
  const std::string expression = "pass expression: parameter p0 of expression 16, which does not exist";
  expectMessage(inventing("expression", [](Dag& dag) { return dag.parameter(16, 0); }), expression, expression);
}

TEST(CustomPass, ChangedPrecisionFailsOnlyItsGraph) {
  const Pipeline widens = pipelineOf("widens", [](const Dag& dag) {
    Dag made(Precision::kF64);
    for (std::size_t i = 0; i < dag.roots().size(); ++i) made.addRoot(made.variable(0));
    return made;
  });
  expectMessage(widens, "pass widens: a graph in f64, not in f32", "pass widens: a graph in f64, not in f32");
}

TEST(CustomPass, ValidGraphIsNoFailure) {
  const Pipeline keeps = pipelineOf("keeps", [](const Dag& dag) { return dag; });
  expectMessage(keeps, "0 failures", "0 failures");
}

/// x0 * x1 + 2, beside which it leaves a dead sine and a dead literal.
Dag productPlusTwo(const Dag& dag, const PassContext&) {
  Dag made(dag.precision());
  const NodeId product = made.apply(Op::kMul, {made.variable(0), made.variable(1)});
  made.apply(Op::kSub, {made.apply(Op::kSin, {product}), made.constant(7)});
  made.addRoot(made.apply(Op::kAdd, {product, made.constant(2)}));
  return made;
}

TEST(CustomPass, DeadNodesAreNotCounted) {
  ASSERT_TRUE(registerPass({"leaves-dead-nodes", productPlusTwo, Exactness::kExact, "a pass of a test"}).ok());
  const Engine engine = Engine::create({}).value();
  const std::vector<Expression> one{build({Token::variable(0), Token::variable(1), Token::operation(Op::kMul)})};
  const Workload w{.expressions = one, .columns = {{3}, {5}}, .target = {}, .weights = {}, .parameters = {}};
  for (const char* names : {"leaves-dead-nodes", "leaves-dead-nodes,schedule"}) {
    const Pipeline pipeline = Pipeline::parse(names, Math::kPrecise).value();
    for (const Tier tier : {Tier::kInterpret, Tier::kCompile}) {
      const Program program = engine.compile(one, {.tier = tier, .pipeline = pipeline});
      EXPECT_EQ(program.info().nodes_after, 5U) << names << ": x0, x1, *, 2, +";
      EXPECT_EQ(predict(engine, program, engine.upload(w.view()).value(), {}), std::vector<double>{17});
    }
  }
}

}  // namespace
}  // namespace srjit
