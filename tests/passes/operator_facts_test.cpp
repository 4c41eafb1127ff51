#include "passes/operator_facts.h"

#include <string>

#include <gtest/gtest.h>

#include "ir/ops.h"
#include "ir/rows.h"
#include "passes/gradient/differentiate.h"
#include "passes/members.h"
#include "tests/generators/population.h"

namespace srjit {
namespace {

/// The variables that a node contains, as bits.
unsigned variablesOf(const Dag& dag, NodeId root) {
  RootMembers members;
  members.collect(dag, {&root, 1});
  unsigned bits = 0;
  for (const NodeId id : members.members()) {
    if (dag.node(id).kind == Token::Kind::kVariable) bits |= 1U << dag.node(id).index;
  }
  return bits;
}

TEST(OperandSets, AreThoseOfTheNodesOfDerivatives) {
  for (const Op op : allOperators()) {
    Dag dag(Precision::kF64);
    const graph::NodeMaker maker(dag, nullptr);
    Operands operands{};
    for (std::uint32_t k = 0; k < static_cast<std::uint32_t>(arityOf(op)); ++k) operands[k] = dag.variable(k);
    const auto valueOf = [&](std::size_t k) { return graph::Value(operands[k], maker); };
    const graph::Value result(dag.applyOrdered(op, operands), maker);
    for (int k = 0; k < arityOf(op); ++k) {
      const graph::Value partial = derivativeRow(op, k, valueOf(0), valueOf(1), valueOf(2), result);
      const std::optional<std::uint8_t> set = operandsOfPartial(op, k);
      const std::string what = std::string(infoOf(op).name) + " by operand " + std::to_string(k);
      EXPECT_EQ(!set, partial.isLiteral() && partial.literal() == 0) << what;
      EXPECT_EQ(set.value_or(0), partial.isLiteral() ? 0U : variablesOf(dag, partial.in(maker))) << what;
    }
    for (int k = arityOf(op); k < kMaxArity; ++k) EXPECT_FALSE(operandsOfPartial(op, k));
  }
}

TEST(ExceptionalOperands, AreFoundInTheTable) {
  for (const Op op : {Op::kDiv, Op::kInv, Op::kLog, Op::kSqrt, Op::kAsin, Op::kPow, Op::kMod, Op::kExp}) {
    EXPECT_TRUE(mayBeExceptional(op)) << infoOf(op).name;
  }
  for (const Op op :
       {Op::kAdd, Op::kMul, Op::kFma, Op::kSin, Op::kTanh, Op::kIf, Op::kPdiv, Op::kPlog, Op::kLooseLog}) {
    EXPECT_FALSE(mayBeExceptional(op)) << infoOf(op).name;
  }
  EXPECT_TRUE(mayHide(Op::kTanh, 0) && mayHide(Op::kExp, 0) && mayHide(Op::kDiv, 1) && mayHide(Op::kIf, 1));
  EXPECT_FALSE(mayHide(Op::kDiv, 0) || mayHide(Op::kAdd, 1) || mayHide(Op::kMul, 0) || mayHide(Op::kLog, 0));
  EXPECT_TRUE(mayFailBeside(Op::kAtan2, 0) && mayFailBeside(Op::kAq, 1));
  EXPECT_FALSE(mayFailBeside(Op::kTanh, 0) || mayFailBeside(Op::kDiv, 0) || mayFailBeside(Op::kDiv, 1));
}

TEST(ApproximateSteps, AreReadFromTheTable) {
  for (const Op op : {Op::kAdd, Op::kMul, Op::kFma, Op::kCube, Op::kFloor, Op::kMin, Op::kLt, Op::kIf, Op::kAbs,
                      Op::kErf, Op::kCbrt, Op::kExpm1, Op::kMod}) {
    EXPECT_FALSE(hasApproximateStep(op)) << infoOf(op).name;
  }
  for (const Op op : {Op::kDiv, Op::kInv, Op::kSqrt, Op::kAq, Op::kPdiv, Op::kPsqrt, Op::kLooseInv, Op::kExp, Op::kPow,
                      Op::kLogistic, Op::kPlog, Op::kLoosePow, Op::kLog10, Op::kSin, Op::kTanh}) {
    EXPECT_TRUE(hasApproximateStep(op)) << infoOf(op).name;
  }
}

}  // namespace
}  // namespace srjit
