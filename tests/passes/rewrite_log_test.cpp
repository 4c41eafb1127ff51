// What passes say that they replaced.
#include "passes/rewrite_log.h"

#include <gmock/gmock.h>

#include "ir/text.h"
#include "passes/pass.h"
#include "passes/working_dag.h"
#include "tests/generators/graphs.h"
#include "tests/generators/population.h"

namespace srjit {
namespace {

using testing::ElementsAre;

/// The rules that fired, as "depth pattern -> replacement (keeps)", in a pass over one expression.
std::vector<std::string> firedRules(const char* text, const char* pass, Math math) {
  WorkingDag work(graphOf({text}, Precision::kF32));
  RewriteLog log;
  const Pipeline pipeline = Pipeline::parse(pass, math).value();
  for (const Pass& each : pipeline.passes()) each.rewrite(work, PassContext{math, &log});
  std::vector<std::string> rules;
  for (const RewriteLog::Firing& firing : log.firings()) {
    rules.push_back(std::to_string(firing.depth) + ' ' + std::string(firing.pattern) + " -> " +
                    std::string(firing.replacement) + " (" + std::string(firing.keeps) + ')');
  }
  return rules;
}

TEST(RewriteLog, NamesTheRuleOfTheTable) {
  EXPECT_THAT(firedRules("x0^2", "simplify", Math::kPrecise), ElementsAre("0 x0 ^ 2 -> square(x0) (precise)"));
  EXPECT_THAT(firedRules("x0 * 1", "simplify", Math::kStrict), ElementsAre("0 x0 * 1 -> x0 (exact)"));
  EXPECT_THAT(firedRules("x0 - x0", "simplify", Math::kFast), ElementsAre("0 x0 - x0 -> 0 (fast)"));
}

TEST(RewriteLog, NestsWhatFiresWithinAReplacement) {
  EXPECT_THAT(firedRules("x0 / 4", "simplify", Math::kStrict),
              ElementsAre("0 x0 / p0 -> x0 * (1 / p0) (exact)", "1 an operator over constants -> its value (exact)"));
  // The product of the outer rule is itself rewritten.
  EXPECT_THAT(firedRules("-x0 / -1", "simplify", Math::kStrict), testing::Not(testing::IsEmpty()));
}

TEST(RewriteLog, SaysWhatWasFused) {
  for (const auto& [text, made] : {std::pair("x0*x1 + x2", "fma"), {"x0*x1 - x2", "fms"}, {"x2 - x0*x1", "fnma"}}) {
    EXPECT_THAT(firedRules(text, "fma", Math::kPrecise),
                ElementsAre(fmt::format("0 {} -> {}(x0, x1, x2) (precise)", text, made)));
  }
}

TEST(RewriteLog, HasTheTermAndWhatStandsForIt) {
  WorkingDag work(graphOf({"sin(x0^2)"}, Precision::kF32));
  const NodeId sine = work.dag().roots()[0];
  const NodeId power = work.dag().node(sine).operands[0];
  RewriteLog log;
  const Pipeline pipeline = Pipeline::parse("simplify", Math::kPrecise).value();
  pipeline.passes()[0].rewrite(work, PassContext{Math::kPrecise, &log});
  ASSERT_EQ(log.firings().size(), 1U);
  const RewriteLog::Firing& firing = log.firings()[0];
  EXPECT_EQ(firing.op, Op::kPow);
  EXPECT_EQ(firing.operands[0], work.dag().node(power).operands[0]);
  EXPECT_EQ(work.dag().node(firing.result).op, Op::kSquare);
  const std::vector<std::pair<NodeId, NodeId>> replaced = {{power, firing.result}, {sine, work.dag().roots()[0]}};
  EXPECT_EQ(log.replaced(), replaced);
  log.clear();
  EXPECT_TRUE(log.firings().empty());
  EXPECT_TRUE(log.replaced().empty());
}

TEST(RewriteLog, ChangesNothing) {
  for (const Math math : {Math::kStrict, Math::kPrecise, Math::kFast}) {
    const Pipeline pipeline = Pipeline::parse("standard,simplify", math).value();
    for (std::uint64_t seed = 0; seed < 50; ++seed) {
      const std::vector<Expression> batch = ExpressionGenerator({.seed = seed}).batch(4);
      RewriteLog log;
      const Dag with = pipeline.run(Dag::fromExpressions(batch, Precision::kF32), PassContext{math, &log});
      EXPECT_EQ(with, pipeline.run(Dag::fromExpressions(batch, Precision::kF32), PassContext{math}));
    }
  }
}

}  // namespace
}  // namespace srjit
