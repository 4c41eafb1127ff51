#include "compiler/host/jit.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "ir/ops.h"
#include "tests/generators/population.h"

namespace srjit {
namespace {

TEST(InterleavedOrder, IsATopologicalOrderOfAllNeededNodes) {
  GeneratorOptions options{.min_nodes = 1, .max_nodes = 40, .variables = 2};
  for (options.seed = 1; options.seed <= 50; ++options.seed) {
    const std::vector<Expression> batch = ExpressionGenerator(options).batch(20);
    const Dag dag = Dag::fromExpressions(batch, Precision::kF32);
    for (const unsigned ways : {1U, 3U, 100U}) {
      const std::vector<NodeId> order = interleavedOrder(dag, ways);
      std::vector<bool> done(dag.size());
      for (const NodeId id : order) {
        EXPECT_FALSE(done[id]);
        for (const NodeId input : dag.node(id).inputs()) EXPECT_TRUE(done[input] || dag.node(input).arity() == 0);
        done[id] = true;
      }
      for (NodeId id = 0; id < dag.size(); ++id) EXPECT_EQ(done[id], dag.node(id).arity() > 0);
    }
  }
}

TEST(InterleavedOrder, AlternatesBetweenRoots) {
  Dag dag(Precision::kF32);
  std::vector<NodeId> chains;
  for (std::uint32_t root = 0; root < 3; ++root) {
    NodeId chain = dag.variable(root);
    for (int i = 0; i < 4; ++i) chain = dag.apply(Op::kSin, {chain});
    dag.addRoot(chain);
    chains.push_back(chain);
  }
  const auto place = [](const std::vector<NodeId>& order, NodeId id) {
    return std::find(order.begin(), order.end(), id) - order.begin();
  };
  const std::vector<NodeId> two = interleavedOrder(dag, 2);
  EXPECT_EQ(place(two, chains[0]), 6);
  EXPECT_EQ(place(two, chains[1]), 7);
  EXPECT_EQ(place(two, chains[2]), 11);
  EXPECT_EQ(place(interleavedOrder(dag, 1), chains[0]), 3);
}

TEST(InterleavedOrder, OmitsDeadNodes) {
  Dag dag(Precision::kF32);
  const NodeId wanted = dag.apply(Op::kSin, {dag.variable(0)});
  dag.apply(Op::kCos, {wanted});
  dag.addRoot(wanted);
  dag.addRoot(wanted);
  dag.addRoot(dag.variable(0));
  EXPECT_EQ(interleavedOrder(dag, 8), std::vector<NodeId>{wanted});
}

}  // namespace
}  // namespace srjit
