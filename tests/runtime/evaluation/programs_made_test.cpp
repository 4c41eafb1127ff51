// Programs that are made of a program are kept, and samples of the same data share them.
#include <atomic>
#include <thread>

#include <gtest/gtest.h>

#include "ir/ops.h"
#include "runtime/evaluation/program_state.h"
#include "tests/generators/workload.h"

namespace srjit {
namespace {

TEST(ProgramsMade, KeepTheMostRecentlyUsed) {
  const Engine engine = Engine::create({}).value();
  ProgramsMade made;
  int makes = 0;
  const auto use = [&](std::size_t purpose) {
    (void)made.get(purpose, Deadline(), [&] {
      ++makes;
      return engine.compile(infixes({"x0"}));
    });
  };
  for (std::size_t purpose = 0; purpose < 100; ++purpose) {
    use(purpose);
    use(0);
  }
  EXPECT_EQ(makes, 100) << "what is used in between stays";
  use(1);
  EXPECT_EQ(makes, 101) << "others go";
}

/// Calls `get` with a deadline while another call, without one, makes what both want; gives the error of the first.
template <class Get>
Errc errorOfAWait(const Get& get) {
  std::atomic<bool> is_made = false, may_end = false;
  std::thread other([&] {
    get(Deadline(), [&] {
      is_made = true;
      while (!may_end) std::this_thread::yield();
    });
  });
  while (!is_made) std::this_thread::yield();
  Errc code{};
  try {
    get(Deadline(0.001), [] { ADD_FAILURE() << "nobody else may make it"; });
    ADD_FAILURE() << "it cannot be there";
  } catch (const ErrorException& late) {
    code = late.error().code;
  }
  may_end = true;
  other.join();
  get(Deadline(1000), [] { ADD_FAILURE() << "it is there"; });
  return code;
}

TEST(ProgramsMade, ADeadlineEndsAWait) {
  const Engine engine = Engine::create({}).value();
  const Program program = engine.compile(infixes({"x0"}));
  ProgramsMade made;
  EXPECT_EQ(errorOfAWait([&](const Deadline& deadline, const auto& wait) {
              (void)made.get(std::size_t{1}, deadline, [&] { return wait(), program; });
            }),
            Errc::kLimit);
}

/// How many graphs 40 samples need. The target has the standard deviation 3 and a mean that is on no grid.
template <class Use>
int graphsOfSamples(const std::string& name, const Use& use) {
  auto graphs = std::make_shared<std::atomic<int>>(0);
  const auto count = [graphs](const Dag& dag, const PassContext&) {
    ++*graphs;
    return dag;
  };
  EXPECT_TRUE(registerPass({name, count, Exactness::kExact, "a pass of a test"}).ok());
  Workload w{.expressions = infixes({"x0*p0"}), .columns = {{}}};
  Random random(5);
  for (std::size_t r = 0; r < 64 * kRowsPerGroup; ++r) {
    w.columns[0].push_back(random.between(-1.0, 1.0));
    w.target.push_back(7.3 + random.between(-1.0, 1.0) * 3 * std::sqrt(3.0));
  }
  const Engine engine = Engine::create({.device = "cpu", .tier = Tier::kInterpret}).value();
  const Dataset data = engine.upload(w.view()).value();
  const Program program = engine.compile(
      w.expressions, {.pipeline = Pipeline::parse("standard," + name + ",schedule", Math::kPrecise).value()});
  const int before = *graphs;
  for (std::uint64_t seed = 0; seed < 40; ++seed) use(engine, program, engine.sample(data, 8, seed).value());
  return *graphs - before;
}

TEST(ProgramsMade, SamplesShareThoseOfScaledGradientsAndOfFits) {
  const std::vector<double> parameters{0.5};
  EXPECT_EQ(graphsOfSamples("count-moments",
                            [&](const Engine& engine, const Program& program, const Dataset& data) {
                              ASSERT_TRUE(engine.loss(program, data, parameters, {.kind = LossKind::kScaledMse}).ok());
                            }),
            0)
      << "kernels add moments";
  EXPECT_LE(graphsOfSamples("count-losses",
                            [&](const Engine& engine, const Program& program, const Dataset& data) {
                              const GradientOptions scaled{.loss = {.kind = LossKind::kScaledMse}};
                              ASSERT_TRUE(engine.gradient(program, data, parameters, scaled).ok());
                            }),
            4);
  EXPECT_LE(
      graphsOfSamples("count-fits",
                      [&](const Engine& engine, const Program& program, const Dataset& data) {
                        ASSERT_TRUE(engine.fit(program, data, parameters, {.loss = {.kind = LossKind::kMae}}).ok());
                      }),
      4);
}

}  // namespace
}  // namespace srjit
