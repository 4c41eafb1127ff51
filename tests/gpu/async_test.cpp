// Work in flight: several evaluations at once, from several threads, concurrent with host work and compilation.
#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <thread>

#include "runtime/evaluation/program_state.h"
#include "runtime/platform/clock.h"
#include "tests/gpu/machine.h"

namespace srjit {
namespace {

constexpr Mode kFastMode{Precision::kF32, Math::kFast};

GeneratorOptions population(std::uint64_t seed) {
  GeneratorOptions options = findPopulation("arithmetic", seed).value();
  options.parameters = 2;
  options.parameter_probability = 0.2;
  return options;
}

std::vector<double> moved(std::span<const double> parameters, int step) {
  std::vector<double> values;
  for (const double p : parameters) values.push_back(p + 0.125 * step);
  return values;
}

class Async : public Gpu {
 protected:
  void SetUp() override {
    Gpu::SetUp();
    if (!IsSkipped()) engine_.emplace(engineOf(kFastMode));
  }
  bool isGpu() const { return engine_->options().device != "cpu"; }

  Pending<Losses> submit(const Program& program, const Dataset& data, std::span<const double> parameters) const {
    return engine_->submitLoss(program, data, parameters).value();
  }

  std::optional<Engine> engine_;
};

TEST_F(Async, LossesInFlightEqualSequentialOnes) {
  const Workload w = Workload::random(population(1), 300, 20000, Spread::kTame, Precision::kF32);
  const Dataset data = engine_->upload(w.view()).value();
  const Program one = engine_->compile(w.expressions, {.tier = Tier::kInterpret});
  const Program other = engine_->compile(std::span(w.expressions).first(100), {.tier = Tier::kCompile});
  const std::span<const double> some = std::span(w.parameters).first(other.parameterOffset(100));
  std::vector<Losses> expected;
  for (int i = 0; i < 8; ++i) {
    expected.push_back(lossesOf(*engine_, i % 3 == 2 ? other : one, data,
                                moved(i % 3 == 2 ? some : std::span<const double>(w.parameters), i), {}));
  }
  std::vector<Pending<Losses>> flights;
  for (int i = 0; i < 8; ++i) {
    flights.push_back(
        submit(i % 3 == 2 ? other : one, data, moved(i % 3 == 2 ? some : std::span<const double>(w.parameters), i)));
  }
  // In reverse order: the result must not depend on the order of waits.
  for (std::size_t i = flights.size(); i-- > 0;) {
    const Losses losses = std::move(flights[i]).result().value();
    expectSameLosses(expected[i], losses, "flight " + std::to_string(i));
  }
}

TEST_F(Async, PredictionsInFlightEqualSequentialOnes) {
  const Workload w = Workload::random(population(7), 300, 40000, Spread::kTame, Precision::kF32);  // 48 MB: chunks
  const Dataset data = engine_->upload(w.view()).value();
  const Program interpreted = engine_->compile(w.expressions, {.tier = Tier::kInterpret});
  const Program compiled = engine_->compile(w.expressions, {.tier = Tier::kCompile});
  std::vector<std::vector<float>> values(4, std::vector<float>(w.expressions.size() * w.rows()));
  std::vector<Pending<std::vector<Failure>>> flights;
  std::vector<Pending<Losses>> between;
  for (int i = 0; i < 4; ++i) {
    const Program& program = i % 2 == 0 ? interpreted : compiled;
    flights.push_back(engine_
                          ->submitEvaluate(program, data, moved(w.parameters, i),
                                           std::span<float>(values[static_cast<std::size_t>(i)]))
                          .value());
    between.push_back(submit(program, data, moved(w.parameters, i)));
  }
  for (int i = 4; i-- > 0;) {
    const auto at = static_cast<std::size_t>(i);
    EXPECT_TRUE(std::move(flights[at]).result().value().empty());
    const std::vector<double> parameters = moved(w.parameters, i);
    expectSameBits(std::vector<double>(values[at].begin(), values[at].end()),
                   predict(*engine_, interpreted, data, parameters), w.rows(), "predictions in flight");
    expectSameLosses(lossesOf(*engine_, interpreted, data, parameters, {}), std::move(between[at]).result().value(),
                     "losses between them");
  }
}

TEST_F(Async, DiscardedFlightsEndCleanly) {
  const Workload w = Workload::random(population(2), 300, 20000, Spread::kTame, Precision::kF32);
  const Dataset data = engine_->upload(w.view()).value();
  const Program program = engine_->compile(w.expressions, {.tier = Tier::kInterpret});
  const Losses expected = lossesOf(*engine_, program, data, w.parameters, {});
  for (int i = 0; i < 5; ++i) (void)submit(program, data, moved(w.parameters, i));
  expectSameLosses(expected, lossesOf(*engine_, program, data, w.parameters, {}), "afterwards");
}

TEST_F(Async, ThreadsShareAnEngine) {
  const Workload w = Workload::random(population(3), 200, 5000, Spread::kTame, Precision::kF32);
  const Dataset data = engine_->upload(w.view()).value();
  const Program shared = engine_->compile(w.expressions, {.tier = Tier::kInterpret});
  constexpr int kThreads = 8, kRounds = 6;
  std::vector<Losses> expected;
  for (int i = 0; i < kThreads; ++i) expected.push_back(lossesOf(*engine_, shared, data, moved(w.parameters, i), {}));
  const std::vector<double> predictions = predict(*engine_, shared, data, w.parameters);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      const Program own = engine_->compile(w.expressions, {.tier = Tier::kInterpret});
      const std::vector<double> parameters = moved(w.parameters, t);
      for (int round = 0; round < kRounds; ++round) {
        Pending<Losses> first = submit(shared, data, parameters), second = submit(own, data, parameters);
        expectSameLosses(expected[static_cast<std::size_t>(t)], std::move(second).result().value(), "own program");
        expectSameLosses(expected[static_cast<std::size_t>(t)], std::move(first).result().value(), "shared program");
      }
      if (t % 2 == 0) expectSameBits(predict(*engine_, own, data, w.parameters), predictions, 5000, "predictions");
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// The next population is encoded while the device evaluates this one. Times are not asserted; they are printed, and are
// properties in the test's XML report.
TEST_F(Async, EncodingOverlapsEvaluation) {
  if (!isGpu()) GTEST_SKIP() << "the processor does both";
  constexpr std::size_t kPopulations = 6, kExpressions = 4000, kRows = 400000;
  std::vector<std::vector<Expression>> populations;
  for (std::size_t i = 0; i < kPopulations; ++i) {
    populations.push_back(ExpressionGenerator(findPopulation("mixed", i + 1).value()).batch(kExpressions));
  }
  GeneratorOptions of_data = findPopulation("mixed", 9).value();
  const Workload w = Workload::random(of_data, 1, kRows, Spread::kTame, Precision::kF32);
  const Dataset data = engine_->upload(w.view()).value();
  const auto encode = [&](std::size_t i) { return engine_->compile(populations[i], {.tier = Tier::kInterpret}); };
  lossesOf(*engine_, encode(0), data, {}, {});  // compiles the kernels

  std::vector<Losses> expected;
  double encoding = 0, evaluating = 0;
  for (std::size_t i = 0; i < kPopulations; ++i) {
    const Stopwatch encode_watch;
    const Program program = encode(i);
    encoding += encode_watch.seconds();
    const Stopwatch evaluate_watch;
    expected.push_back(lossesOf(*engine_, program, data, {}, {}));
    evaluating += evaluate_watch.seconds();
  }

  const Stopwatch watch;
  double submitting = 0;
  std::size_t overlapped = 0;
  std::optional<Program> program = encode(0);
  for (std::size_t i = 0; i < kPopulations; ++i) {
    const Stopwatch submit_watch;
    Pending<Losses> flight = submit(*program, data, {});
    submitting += submit_watch.seconds();
    EXPECT_FALSE(flight.ready()) << "submitLoss returned only when the result was there";
    if (i + 1 < kPopulations) program = encode(i + 1);
    if (!flight.ready()) ++overlapped;
    expectSameLosses(expected[i], std::move(flight).result().value(), "population " + std::to_string(i));
  }
  const double pipelined = watch.seconds();
  EXPECT_GT(overlapped, 0U);
  std::printf(
      "%zu populations, %zu of them still at work when the next was encoded: encoding %.1f ms + evaluating %.1f ms = "
      "%.1f ms one after the other, "
      "%.1f ms pipelined, %.2f ms of them in submitLoss\n",
      kPopulations, overlapped, encoding * 1e3, evaluating * 1e3, (encoding + evaluating) * 1e3, pipelined * 1e3,
      submitting * 1e3);
  RecordProperty("milliseconds_one_after_the_other", std::to_string((encoding + evaluating) * 1e3));
  RecordProperty("milliseconds_pipelined", std::to_string(pipelined * 1e3));
}

TEST_F(Async, BackgroundCodeReplacesTheInterpreter) {
  const Workload w = Workload::random(population(5), 256, 100000, Spread::kTame, Precision::kF32);
  const Dataset data = engine_->upload(w.view()).value();
  const Program interpreted = engine_->compile(w.expressions, {.tier = Tier::kInterpret});
  const Losses expected = lossesOf(*engine_, interpreted, data, w.parameters, {});
  const std::vector<double> predictions = predict(*engine_, interpreted, data, w.parameters);
  const Program program =
      engine_->compile(w.expressions, {.tier = Tier::kAuto, .expected_evaluations = 1e9, .expected_rows = data.rows()});
  std::size_t interpreted_evaluations = 0;
  ProgramStatus status;
  // The costs in this machine's cache decide whether direct or LLVM's code takes over.
  for (;;) {
    expectSameLosses(expected, lossesOf(*engine_, program, data, w.parameters, {}), "meanwhile");
    if (HasFatalFailure()) return;
    status = program.status();
    if (!isGpu() || status.error || status.served.interpreted < w.expressions.size() / 2) break;
    ++interpreted_evaluations;
  }
  if (!isGpu()) return;
  EXPECT_NE(status.tier, Tier::kInterpret);
  EXPECT_FALSE(status.error) << status.error->message;
  EXPECT_GT(status.served.direct + status.served.compiled, w.expressions.size() / 2);
  EXPECT_GT(status.compiled, w.expressions.size() / 2);
  EXPECT_GT(status.device_seconds, 0);
  std::printf("%zu evaluations were interpreted during the %.0f ms of compiling\n", interpreted_evaluations,
              status.seconds_compiling * 1e3);
  expectSameLosses(expected, lossesOf(*engine_, program, data, w.parameters, {}), "compiled");
  expectSameBits(predict(*engine_, program, data, w.parameters), predictions, data.rows(), "compiled");
}

TEST_F(Async, DestroyedProgramsReleaseTheirSource) {
  // The work in the background is the self-test, whose result no disk cache has, and direct code.
  // DeviceEngineTiers.DestroyedProgramCancelsItsCompilation tests LLVM's on the model.
  EngineOptions options = engine_->options();
  options.cache_directory = "";
  options.precision = Precision::kF64;
  const Engine engine = Engine::create(options).value();
  int destroyed_while_compiling = 0;
  for (const std::uint64_t seed : {6, 7, 8}) {
    const GeneratorOptions mixed = findPopulation("mixed", seed).value();
    const Workload w = Workload::random(mixed, 4000, 100000, Spread::kTame, Precision::kF64);
    const Dataset data = engine.upload(w.view()).value();
    const Losses expected =
        lossesOf(engine, engine.compile(w.expressions, {.tier = Tier::kInterpret}), data, w.parameters, {});
    std::weak_ptr<const ProgramSource> source;
    {
      const Program program = engine.compile(
          w.expressions, {.tier = Tier::kAuto, .expected_evaluations = 1e9, .expected_rows = data.rows()});
      source = program.state().source;
      expectSameLosses(expected, lossesOf(engine, program, data, w.parameters, {}), "while compiling");
      destroyed_while_compiling += program.status().compiling ? 1 : 0;
    }
    // Background work holds the source. If it is never released, the test fails by the timeout of ctest.
    while (!source.expired()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  if (isGpu()) {
    EXPECT_GT(destroyed_while_compiling, 0);
  }
}

}  // namespace
}  // namespace srjit
