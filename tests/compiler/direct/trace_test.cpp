// Which node each instruction of the direct tier belongs to.
#include <algorithm>

#include <gmock/gmock.h>

#include "compiler/direct/emitter.h"
#include "compiler/sass/instruction.h"
#include "compiler/target/architecture.h"
#include "ir/ops.h"
#include "ir/text.h"
#include "passes/pass.h"
#include "tests/generators/population.h"

namespace srjit {
namespace {

using testing::IsEmpty;

Dag optimized(std::span<const Expression> batch, Precision precision, Math math = Math::kPrecise) {
  return Pipeline::standard(math).run(Dag::fromExpressions(batch, precision), PassContext{math});
}

DirectPart plainPart(const Dag& dag, const DirectOptions& options) {
  return DirectEmitter::create(options).value().emit(dag);
}

TEST(DirectTrace, ChangesNoWordAndHasOneEntryForEach) {
  for (const Precision precision : {Precision::kF32, Precision::kF64}) {
    for (const unsigned window : {1U, 8U}) {
      DirectOptions options;
      options.precision = precision;
      options.window = window;
      DirectEmitter emitter = DirectEmitter::create(options).value();
      for (std::uint64_t seed = 1; seed <= 10; ++seed) {
        const Dag dag = optimized(ExpressionGenerator({.seed = seed}).batch(40), precision);
        DirectTrace trace;
        const DirectPart part = emitter.emit(dag, trace);
        EXPECT_EQ(part.words, plainPart(dag, options).words);
        ASSERT_EQ(trace.size(), part.words.size());
        for (const std::vector<NodeId>& nodes : trace) {
          EXPECT_TRUE(std::ranges::is_sorted(nodes));
          for (const NodeId node : nodes) EXPECT_LT(node, dag.size());
        }
      }
    }
  }
}

TEST(DirectTrace, EveryNodeThatComputesHasInstructions) {
  const std::vector<Expression> batch = ExpressionGenerator({.seed = 3, .max_nodes = 30}).batch(30);
  const Dag dag = optimized(batch, Precision::kF32);
  DirectTrace trace;
  DirectEmitter emitter = DirectEmitter::create({}).value();
  const DirectPart part = emitter.emit(dag, trace);
  ASSERT_THAT(part.refused, IsEmpty());
  std::vector<std::size_t> counts(dag.size());
  for (const std::vector<NodeId>& nodes : trace) {
    for (const NodeId node : nodes) ++counts[node];
  }
  const auto isModifier = [](const Node& node) {
    return node.isOperator() && (node.op == Op::kNeg || node.op == Op::kAbs);
  };
  for (NodeId id = 0; id < dag.size(); ++id) {
    if (!isModifier(dag.node(id))) {
      EXPECT_GT(counts[id], 0U) << id;
    }
  }
}

TEST(DirectTrace, InstructionsAreThoseOfTheirOperator) {
  const Expression expression = parse("p0 * x0 + exp(x1)", Language::kInfix).value();
  const Dag dag = optimized({&expression, 1}, Precision::kF32, Math::kFast);
  DirectOptions options;
  options.math = Math::kFast;
  DirectTrace trace;
  DirectEmitter emitter = DirectEmitter::create(options).value();
  const DirectPart part = emitter.emit(dag, trace);
  const auto formsOf = [&](NodeId id) {
    std::vector<sass::Form> forms;
    for (std::size_t word = 0; word < part.words.size(); ++word) {
      if (std::ranges::find(trace[word], id) == trace[word].end()) continue;
      forms.push_back(sass::decode(part.words[word], options.architecture).value().form);
    }
    return forms;
  };
  for (NodeId id = 0; id < dag.size(); ++id) {
    const Node& node = dag.node(id);
    if (node.kind == Token::Kind::kVariable) {
      EXPECT_THAT(formsOf(id), testing::Contains(sass::Form::kLdg));
    }
    if (node.kind == Token::Kind::kParameter) {
      EXPECT_THAT(formsOf(id), testing::ElementsAre(sass::Form::kLdg128));
    }
    if (node.isOperator() && node.op == Op::kFma) {
      EXPECT_THAT(formsOf(id), testing::Contains(sass::Form::kStg));
    }
    if (node.isOperator() && node.op == Op::kFma) {
      EXPECT_THAT(formsOf(id), testing::Contains(sass::Form::kFFmaRRR));
    }
    if (node.isOperator() && node.op == Op::kExp) {
      EXPECT_THAT(formsOf(id), testing::Contains(sass::Form::kMufuR));
    }
  }
}

}  // namespace
}  // namespace srjit
