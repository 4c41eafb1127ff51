// Pipelines rewrite one graph in place; the result must be that of the passes one by one, with the same node ids.
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "ir/mix.h"
#include "tests/generators/graphs.h"

namespace srjit {
namespace {

constexpr std::size_t kBatch = 200;

/// 2000 expressions of operators that IEEE 754 defines exactly, so that folded constants have the same bits on every
/// machine.
ExpressionGenerator exactExpressions() {
  using enum Op;
  return ExpressionGenerator({.seed = 20,
                              .min_nodes = 1,
                              .max_nodes = 24,
                              .variables = 2,
                              .parameters = 2,
                              .ops = {kAdd, kSub, kMul, kDiv, kNeg, kSquare, kSqrt, kAbs, kInv, kMax},
                              .constant_probability = 0.3,
                              .parameter_probability = 0.2,
                              .special_probability = 0.2});
}

/// One digest per standard pass of `math`: of the printed graphs after it, in both precisions.
std::map<std::string, std::uint64_t> digestsOf(Math math) {
  std::map<std::string, std::uint64_t> digests;
  for (const Precision precision : {Precision::kF32, Precision::kF64}) {
    ExpressionGenerator generator = exactExpressions();
    for (int i = 0; i < 10; ++i) {
      const std::vector<Expression> batch = generator.batch(kBatch);
      Pipeline::standard(math).run(Dag::fromExpressions(batch, precision), {math},
                                   [&](const Pass& pass, const Dag& dag, double) {
                                     std::uint64_t& digest = digests[pass.name];
                                     digest = combine(digest, hashOf(printDag(dag)));
                                   });
    }
  }
  return digests;
}

// Digests of the graphs after each pass, with the ids of nodes. A digest may change only if its pass is meant to
// change.
TEST(Pipelines, GiveThePinnedGraphs) {
  using Digests = std::map<std::string, std::uint64_t>;
  EXPECT_EQ(digestsOf(Math::kStrict), (Digests{
                                          {"hoist", 0xbc4524fcda4b5583u},
                                          {"schedule", 0x88ddbea57073f5b8u},
                                          {"simplify", 0x4b5180022b570aa5u},
                                      }));
  EXPECT_EQ(digestsOf(Math::kPrecise), (Digests{
                                           {"fma", 0x876cedd6edbc81c6u},
                                           {"hoist", 0x118f13da9ce6c094u},
                                           {"schedule", 0xcdb6a4ea6bca03a0u},
                                           {"simplify", 0x4b5180022b570aa5u},
                                       }));
  EXPECT_EQ(digestsOf(Math::kFast), (Digests{
                                        {"fma", 0x1793ce75e153dcdbu},
                                        {"hoist", 0x9189118471f56d1bu},
                                        {"schedule", 0x4b2ad02218cb2f3cu},
                                        {"simplify", 0xb9df57a21dc5e5dcu},
                                    }));
}

void givesWhatThePassesGive(const Pipeline& pipeline, const Dag& given, Math math) {
  std::vector<Dag> steps;
  Dag dag = given;
  for (const Pass& pass : pipeline.passes()) {
    dag = pass.run(dag, {math});
    steps.push_back(dag);
  }
  ASSERT_TRUE(pipeline.run(given, {math}) == dag) << printDag(dag);
  std::size_t step = 0;
  pipeline.run(given, {math}, [&](const Pass& pass, const Dag& seen, double) {
    EXPECT_TRUE(seen == steps[step]) << pass.name << '\n' << printDag(steps[step]);
    ++step;
  });
  ASSERT_EQ(step, steps.size());
}

TEST(Pipelines, EqualTheirPassesAppliedOneByOne) {
  ExpressionGenerator generator = expressionsOfAllOperators(21);
  for (int i = 0; i < 10; ++i) {
    const std::vector<Expression> batch = generator.batch(kBatch);
    for (const Precision precision : {Precision::kF32, Precision::kF64}) {
      const Dag dag = Dag::fromExpressions(batch, precision);
      for (const Math math : {Math::kStrict, Math::kPrecise, Math::kFast}) {
        givesWhatThePassesGive(Pipeline::standard(math), dag, math);
      }
      givesWhatThePassesGive(
          Pipeline::parse("schedule,hoist,simplify,fma,hoist,simplify,fma,schedule", Math::kFast).value(), dag,
          Math::kFast);
    }
  }
}

TEST(Pipelines, RunRegisteredPassesBetweenStandardOnes) {
  ASSERT_TRUE(registerPass({"one-more",
                            [](const Dag& given, const PassContext&) {
                              Dag dag = given;
                              for (std::size_t i = 0; i < dag.roots().size(); ++i) {
                                const NodeId unused = dag.apply(Op::kSin, {dag.roots()[i]});
                                dag.setRoot(i, dag.apply(Op::kAdd, {dag.roots()[i], dag.constant(1)}));
                                EXPECT_NE(unused, dag.roots()[i]);
                              }
                              return dag;
                            },
                            Exactness::kExact, "adds 1"})
                  .ok());
  const Pipeline pipeline = Pipeline::parse("simplify,hoist,one-more,hoist,schedule,one-more", Math::kStrict).value();
  const Dag dag = graphOf({"x0 * (2 + 1)", "1 - x0"});
  EXPECT_EQ(printDag(pipeline.run(dag, {Math::kStrict})),
            "%0 = mul x0, #0(3)\n%1 = add #1(1), %0\n%2 = sub #1(1), x0\n%3 = add #1(1), %2\n%4 = sin %1\n"
            "%5 = add 1, %1\n%6 = sin %3\n%7 = add 1, %3\nroot 0 = %5\nroot 1 = %7\n");
  givesWhatThePassesGive(pipeline, dag, Math::kStrict);
}

}  // namespace
}  // namespace srjit
