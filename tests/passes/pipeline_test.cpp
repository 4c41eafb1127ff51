// Pipelines rewrite one graph in place; what comes out must be what the passes give one by one, number for number.
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/generators/graphs.h"

namespace srjit {
namespace {

constexpr std::size_t kBatch = 200;

/// FNV-1a.
std::uint64_t digestOf(std::string_view text, std::uint64_t digest) {
  for (const char c : text) digest = (digest ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return digest;
}

/// 2000 expressions whose every operator IEEE 754 defines, so that what is folded has the same bits everywhere.
ExpressionGenerator exactExpressions() {
  GeneratorOptions options;
  options.seed = 20;
  options.min_nodes = 1;
  options.max_nodes = 24;
  options.variables = 2;
  options.parameters = 2;
  options.constant_probability = 0.3;
  options.parameter_probability = 0.2;
  options.special_probability = 0.2;
  options.ops = {Op::kAdd,    Op::kSub,  Op::kMul, Op::kDiv, Op::kNeg,
                 Op::kSquare, Op::kSqrt, Op::kAbs, Op::kInv, Op::kMax};
  return ExpressionGenerator(options);
}

/// The printed graphs after each standard pass of `math`, in both precisions, as one number for each pass.
std::map<std::string, std::uint64_t> digestsOf(Math math) {
  std::map<std::string, std::uint64_t> digests;
  for (const Precision precision : {Precision::kF32, Precision::kF64}) {
    ExpressionGenerator generator = exactExpressions();
    for (int i = 0; i < 10; ++i) {
      const std::vector<Expression> batch = generator.batch(kBatch);
      Pipeline::standard(math).run(Dag::fromExpressions(batch, precision), {math},
                                   [&](const Pass& pass, const Dag& dag, double) {
                                     std::uint64_t& digest = digests[pass.name];
                                     digest = digestOf(printDag(dag), digest);
                                   });
    }
  }
  return digests;
}

// What the passes make of these expressions, down to the numbers of nodes. A pass that is to give something else gets
// another digest here; nothing else may.
TEST(Pipelines, GiveTheGraphsThatTheyAlwaysGave) {
  using Digests = std::map<std::string, std::uint64_t>;
  EXPECT_EQ(digestsOf(Math::kStrict), (Digests{
                                          {"fold", 0xcd2cf4afed04326bu},
                                          {"hoist", 0xec2d316e66a91248u},
                                          {"schedule", 0x7a324640ce5fae82u},
                                          {"simplify", 0xca5084167f7b60b8u},

                                      }));
  EXPECT_EQ(digestsOf(Math::kPrecise), (Digests{
                                           {"fma", 0xdf7a40697f9451d5u},
                                           {"fold", 0xcd2cf4afed04326bu},
                                           {"fold-functions", 0xca5084167f7b60b8u},
                                           {"hoist", 0xb0d9772c9e385fe4u},
                                           {"schedule", 0x5886f3060bf4d1c7u},
                                           {"simplify", 0xca5084167f7b60b8u},
                                           {"simplify-precise", 0xca5084167f7b60b8u},

                                       }));
  EXPECT_EQ(digestsOf(Math::kFast), (Digests{
                                        {"fma", 0xd7dcf335f1e0202du},
                                        {"fold", 0xeddf827ee0050d23u},
                                        {"fold-functions", 0xf715c429756b8093u},
                                        {"hoist", 0xa4e75aefce8c834bu},
                                        {"schedule", 0xbea56a06a761a370u},
                                        {"simplify", 0x3d3f6984ac9a3760u},
                                        {"simplify-fast", 0xb19d8ef38a63f137u},
                                        {"simplify-precise", 0xc3ee1e3cdc66247fu},

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

TEST(Pipelines, GiveWhatTheirPassesGiveOneByOne) {
  ExpressionGenerator generator = expressionsOfAllOperators(21);
  for (int i = 0; i < 10; ++i) {
    const std::vector<Expression> batch = generator.batch(kBatch);
    for (const Precision precision : {Precision::kF32, Precision::kF64}) {
      const Dag dag = Dag::fromExpressions(batch, precision);
      for (const Math math : {Math::kStrict, Math::kPrecise, Math::kFast}) {
        givesWhatThePassesGive(Pipeline::standard(math), dag, math);
      }
      givesWhatThePassesGive(
          Pipeline::parse("schedule,hoist,simplify-fast,fma,hoist,fold,fma,schedule", Math::kFast).value(), dag,
          Math::kFast);
    }
  }
}

TEST(Pipelines, RunPassesOfProgramsOutsideBetweenTheirOwn) {
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
  const Pipeline pipeline = Pipeline::parse("fold,hoist,one-more,hoist,schedule,one-more", Math::kStrict).value();
  const Dag dag = graphOf({"x0 * (2 + 1)", "1 - x0"});
  EXPECT_EQ(printDag(pipeline.run(dag, {Math::kStrict})),
            "%0 = mul x0, #0(3)\n%1 = add #1(1), %0\n%2 = sub #1(1), x0\n%3 = add #1(1), %2\n%4 = sin %1\n"
            "%5 = add 1, %1\n%6 = sin %3\n%7 = add 1, %3\nroot 0 = %5\nroot 1 = %7\n");
  givesWhatThePassesGive(pipeline, dag, Math::kStrict);
}

}  // namespace
}  // namespace srjit
