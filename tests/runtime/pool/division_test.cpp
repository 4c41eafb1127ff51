// How expressions are divided among devices.
#include <gtest/gtest.h>

#include "runtime/cache/kernels.h"
#include "runtime/code/costs.h"
#include "runtime/cuda/context.h"
#include "runtime/pool/program.h"
#include "tests/generators/scratch.h"
#include "tests/runtime/pool/pooled_machine.h"

namespace srjit {
namespace {

using Ends = std::vector<std::size_t>;

ProgramSource sourceOf(std::initializer_list<std::string_view> texts) {
  ProgramSource source;
  source.set(infixes(texts), 0, false);
  return source;
}

Ends endsOf(const ProgramSource& source, std::vector<double> seconds) { return divideExpressions(source, seconds); }

TEST(Division, IsByTokensAndSpeed) {
  const ProgramSource equal = sourceOf({"x0", "x1", "x2", "x3", "x4", "x5"});
  EXPECT_EQ(endsOf(equal, {1}), Ends({0, 6}));
  EXPECT_EQ(endsOf(equal, {1, 1}), Ends({0, 3, 6}));
  EXPECT_EQ(endsOf(equal, {1, 2}), Ends({0, 4, 6}));
  EXPECT_EQ(endsOf(equal, {1, 0.25, 1}), Ends({0, 1, 5, 6}));
  EXPECT_EQ(endsOf(equal, {1, 1e9}), Ends({0, 6, 6}));
  EXPECT_EQ(endsOf(sourceOf({"x0+x1+x2+x3", "x0", "x1", "x2"}), {1, 1}), Ends({0, 1, 4}));
}

TEST(Division, OfFewerExpressionsThanDevices) {
  EXPECT_EQ(endsOf(sourceOf({"x0"}), {1, 1, 1}), Ends({0, 0, 1, 1}));
  EXPECT_EQ(endsOf(sourceOf({}), {1, 1}), Ends({0, 0, 0}));
  const Ends ends = endsOf(sourceOf({"x0", "x1"}), {1, 1, 1, 1});
  EXPECT_EQ(ends.front(), 0U);
  EXPECT_EQ(ends.back(), 2U);
  EXPECT_TRUE(std::ranges::is_sorted(ends));
}

// Outputs of what is derived count.
TEST(Division, OfDerivativesIsByOutputs) {
  const ProgramSource source = sourceOf({"p0+p1+p2+p3", "x0+x1+x2+x3", "x0+x1+x2+x3", "x0+x1+x2+x3"});
  EXPECT_EQ(endsOf(source, {1, 1}), Ends({0, 2, 4}));
  EXPECT_EQ(endsOf(source.derive({.quantity = Quantity::kGradient, .columns = 4}), {1, 1}), Ends({0, 1, 4}));
}

// In more than one block, out of order, one of them twice.
TEST(ProgramSource, OfSelectedExpressionsHasThese) {
  const ProgramSource all = sourceOf({"p0+x0", "x1*2.5", "p0*p1+x9"});
  ProgramSource some = all.emptyLike();
  constexpr std::size_t kCount = 2 * Population::kBlock + 3;
  const auto which = [](std::size_t i) { return i % 5 == 0 ? 0 : 2 - i % 2; };
  some.setSelected(all, kCount, which);
  ASSERT_EQ(some.expressions.size(), kCount);
  std::size_t tokens = 0, parameters = 0;
  for (std::size_t i = 0; i < kCount; ++i) {
    const ExpressionView expected = all.expressions[which(i)];
    EXPECT_TRUE(std::ranges::equal(some.expressions[i].codes(), expected.codes())) << i;
    EXPECT_EQ(some.parameterOffset(i), parameters) << i;
    tokens += expected.size();
    parameters += expected.parameterCount();
  }
  EXPECT_EQ(some.tokens, tokens);
  EXPECT_EQ(some.variables, 10U);
}

TEST(Division, ASliceHasWhatTheWholeHas) {
  const ProgramSource source =
      sourceOf({"p0+x0", "x1*2.5", "p0*p1+x9", "x3"}).derive({.quantity = Quantity::kGradient, .columns = 10});
  const ProgramSource part = source.slice(1, 3);
  ASSERT_EQ(part.expressions.size(), 2U);
  EXPECT_EQ(part.tokens, 3U + 5U);
  EXPECT_EQ(part.variables, source.variables);
  EXPECT_EQ(part.parameterOffset(2), 2U);
  EXPECT_EQ(part.outputs(), source.outputOffset(3) - source.outputOffset(1));
  EXPECT_TRUE(std::ranges::equal(part.expressions[1].codes(), source.expressions[2].codes()));
  EXPECT_TRUE(std::ranges::equal(part.expressions[0].constants(), source.expressions[1].constants()));
}

// What was measured of each kind of device decides, and is kept beside the kernels.
TEST(Division, FollowsTheCalibrationOfTheDevices) {
  Scratch directory;
  FakeMachine machine(manyDevices(2));
  const Workload w = arithmeticWorkload(5, 60, 40, Precision::kF32);
  const auto sizesOf = [&] {
    const Engine engine = machine.engine(
        {.device = "cuda:all", .math = Math::kStrict, .tier = Tier::kInterpret, .cache_directory = directory.path("")});
    std::vector<std::size_t> tokens;
    const Program program = engine.compile(w.expressions);
    for (const PoolShare& share : *poolProgramOf(program).shares()) tokens.push_back(share.source->tokens);
    return tokens;
  };
  const std::vector<std::size_t> equal = sizesOf();
  ASSERT_EQ(equal.size(), 2U);
  EXPECT_NEAR(static_cast<double>(equal[0]) / static_cast<double>(equal[1]), 1, 0.2);
  {
    const auto cuda = Cuda::open(machine.driver.load().value(), 1).value();
    const auto cache = KernelCache::open({.directory = directory.path("")});
    cache->writeFact(fmt::format("costs of Fake A100 ({}) f32 strict", cuda->limits().driver_version),
                     fmt::format(R"({{"interpret": {}, "direct": 1e-12, "compiled": 1e-12}})",
                                 3 * typicalCosts(Precision::kF32, Math::kStrict).interpret));
  }
  const std::vector<std::size_t> other = sizesOf();
  ASSERT_EQ(other.size(), 2U);
  EXPECT_NEAR(static_cast<double>(other[0]) / static_cast<double>(other[1]), 3, 0.6);
}

}  // namespace
}  // namespace srjit
