// The benchmark of new expressions: its generations, and their evaluation on a model of a GPU and on the processor.
#include "tools/bench/scenarios/fresh.h"

#include <algorithm>
#include <set>
#include <unordered_set>

#include <gmock/gmock.h>

#include "tests/gpu_model/slow_machine.h"
#include "tools/bench/scenarios/on_device.h"

namespace srjit {
namespace {

using ::testing::HasSubstr;

constexpr const char* kPopulations[] = {"small", "mixed", "formula"};

TEST(FreshGenerations, HaveNoExpressionOfAnEarlierOne) {
  for (const char* const population : kPopulations) {
    FreshSource source(population), other(population);
    const std::size_t columns = freshData(population, 1).columns.size();
    std::unordered_set<Expression> seen;
    for (const std::size_t count : {200, 200, 50}) {
      const std::vector<Expression> generation = source.next(count);
      ASSERT_EQ(generation.size(), count);
      EXPECT_EQ(generation, other.next(count)) << "the same on every machine";
      for (const Expression& expression : generation) {
        EXPECT_FALSE(seen.contains(expression));
        EXPECT_LE(expression.variableCount(), columns);
      }
      seen.insert(generation.begin(), generation.end());
    }
  }
}

TEST(FreshGenerations, KeepHalfOfTheLastOneInRandomOrder) {
  const std::vector<Expression> last = populationOf("mixed", 101, 1);
  const std::vector<Expression> fresh = populationOf("mixed", 101, 2);
  const NextGeneration next = halfKept(last, fresh, 3);
  ASSERT_EQ(next.expressions.size(), 101U);
  std::set<std::size_t> kept;
  std::size_t taken = 0, in_place = 0;
  for (std::size_t e = 0; e < 101; ++e) {
    if (next.from[e] == NextGeneration::kNew) {
      EXPECT_EQ(next.expressions[e], fresh[taken++]);
    } else {
      EXPECT_EQ(next.expressions[e], last[next.from[e]]);
      EXPECT_TRUE(kept.insert(next.from[e]).second) << "twice";
      in_place += next.from[e] == e;
    }
  }
  EXPECT_EQ(kept.size(), 50U);
  EXPECT_GT(*kept.rbegin(), 50U) << "not the first half";
  EXPECT_LT(in_place, 10U);
  EXPECT_NE(next.from, halfKept(last, fresh, 4).from);
}

TEST(FreshGenerations, AreTimedInEveryTier) {
  SlowMachine machine(Precision::kF32, Math::kFast);
  const Engine on_model = machine.engine(),
               on_processor = Engine::create({.device = "cpu", .math = Math::kFast}).value();
  for (const char* const population : kPopulations) {
    const std::vector<Expression> generation = populationOf(population, 8, 5);
    const BenchData columns = freshData(population, 100);
    const Dataset data = on_model.upload(columns.view()).value();
    for (const Tier tier : {Tier::kInterpret, Tier::kDirect, Tier::kAuto}) {
      const FreshRun run = timeFresh(on_model, data, generation, {.tier = tier});
      EXPECT_TRUE(run.program.status().tier == tier || tier == Tier::kAuto);
      EXPECT_EQ(run.losses.size(), 8U);
      EXPECT_EQ(run.program.status().evaluations, 2U);
      EXPECT_GT(run.passes, 0);
      EXPECT_GT(run.encoding, 0);
      EXPECT_LE(run.passes + run.encoding, run.total);
      EXPECT_LT(run.compile, run.total);
      EXPECT_GT(run.kernels, 0);
      EXPECT_GT(run.again.wall, 0);
      EXPECT_GT(run.again.device, 0);
      const auto [seconds, losses] = timeOneCall(on_model, data, generation, {.tier = tier});
      EXPECT_GT(seconds, 0);
      EXPECT_TRUE(std::ranges::equal(losses, run.losses, [](double a, double b) { return sameBits(a, b); }));
    }
    const Dataset near = on_processor.upload(columns.view()).value();
    const FreshRun other = timeFresh(on_processor, near, generation, {});
    EXPECT_EQ(other.kernels, 0);
    EXPECT_EQ(other.again.wall, other.again.device);
  }
}

TEST(FreshGenerations, AreTimedOnTheDevice) {
  FakeMachine machine;
  const Engine engine = machine.engine({.math = Math::kFast});
  const std::vector<Expression> generation = withoutParameters(populationOf("small", 100, 5));
  const BenchData columns = freshData("small", 100);
  const Dataset data = engine.upload(columns.view()).value();
  OnDevice on_device(engine, data, Cuda::open(machine.driver.load().value(), 0).value(), generation.size());
  const auto [times, losses] = on_device.run(generation);
  EXPECT_GT(times.submit, 0);
  EXPECT_GE(times.wall, times.submit);
  const CompileOptions as_written{.tier = Tier::kInterpret, .simplify = false};
  const std::vector<double> of_host = timeOneCall(engine, data, generation, as_written).second;
  requireSameBits(losses, of_host, "losses on the device");
}

TEST(FreshGenerations, HaveTheLossesOfKeptExpressions) {
  const Engine engine = Engine::create({.device = "cpu", .math = Math::kFast}).value();
  const Dataset data = engine.upload(freshData("mixed", 300).view()).value();
  const std::vector<Expression> last = populationOf("mixed", 30, 1);
  const FreshRun before = timeFresh(engine, data, last, {.tier = Tier::kInterpret});
  const NextGeneration next = halfKept(last, populationOf("mixed", 30, 2), 3);
  FreshRun after = timeFresh(engine, data, next.expressions, {.tier = Tier::kInterpret});
  compareKept(next, after.losses, before.losses);
  const auto kept = std::ranges::find_if(next.from, [](std::size_t from) { return from != NextGeneration::kNew; });
  after.losses[static_cast<std::size_t>(kept - next.from.begin())] = 1234.5;
  try {
    compareKept(next, after.losses, before.losses);
    FAIL() << "it passed";
  } catch (const BenchFailure& failure) {
    EXPECT_THAT(failure.error.message, HasSubstr("losses of kept expressions: number 0 is 1234.5 instead of"));
  }
}

TEST(FreshGenerations, HaveAFrontEndThatTakesTime) {
  const Engine engine = Engine::create({.device = "cpu", .math = Math::kFast, .threads = 1}).value();
  const std::vector<Expression> generation = populationOf("mixed", 50, 1);
  for (const bool simplify : {true, false}) EXPECT_GT(frontEndSeconds(engine, generation, simplify), 0);
}

}  // namespace
}  // namespace srjit
