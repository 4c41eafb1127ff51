// Calls of engines on every machine: limits, several at once, arguments that are refused, and children of a fork.
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <optional>
#include <thread>

#include <gmock/gmock.h>

#include "tests/runtime/cache/images.h"
#include "tests/runtime/machines/fixture.h"

namespace srjit {
namespace {

using testing::AllOf;
using testing::HasSubstr;

void expectAllRefused(const Program& program, std::size_t count, const char* what) {
  ASSERT_EQ(program.size(), count) << what;
  ASSERT_EQ(program.failures().size(), count) << what;
  for (const Failure& failure : program.failures()) EXPECT_EQ(failure.error.code, Errc::kLimit) << what;
}

/// Calls of an engine, some of them at once.
class MachineCalls : public Machines {
 protected:
  MachineCalls() : tokens_(tokensOf(w_.expressions)), out_(w_.expressions.size() * w_.rows()) {}

  const Workload w_ = workload(3, 20, 300);
  const TokenArrays tokens_;
  const Engine engine_ = machine_.engine();
  const Dataset data_ = engine_.upload(w_.view()).value();
  const Losses expected_ = lossesOf(cpu_, w_, Tier::kInterpret, {});
  std::vector<float> out_;
};

INSTANTIATE_TEST_SUITE_P(, MachineCalls, inSingle(kProcessor, kOneGpu, kThreeGpus), nameOfMachine);

TEST_P(MachineCalls, EndWhereTheTimeIsOver) {
  const Engine late = engine_.withLimits({.max_seconds = 1e-9}).value();
  for (const Tier tier : {Tier::kAuto, Tier::kInterpret, Tier::kCompile}) {
    expectAllRefused(late.compile(w_.expressions, {.tier = tier}), w_.expressions.size(), nameOf(tier));
    const Program program = engine_.compile(w_.expressions, {.tier = tier});
    const auto resultOf = [](auto submitted) { return submitted ? std::move(*submitted).result() : submitted.error(); };
    const auto& x = w_.parameters;
    std::vector<float> jacobian(x.size() * w_.rows());
    expectLate(late.loss(program, data_, x), "1e-09 s", "loss");
    expectLate(late.loss(program, data_, x, {.kind = LossKind::kNmse}), "1e-09 s", "loss of graphs");
    expectLate(late.evaluate(program, data_, x, std::span(out_)), "1e-09 s", "evaluate");
    expectLate(late.gradient(program, data_, x), "1e-09 s", "gradient");
    expectLate(late.jacobian(program, data_, x, std::span(jacobian)), "1e-09 s", "jacobian");
    expectLate(late.fit(program, data_, x), "1e-09 s", "fit");
    expectLate<Losses>(resultOf(late.submitLoss(program, data_, x)), "1e-09 s", "submitLoss");
    expectLate<std::vector<Failure>>(resultOf(late.submitEvaluate(program, data_, x, std::span(out_))), "1e-09 s",
                                     "submitted");
    expectLate<Fits>(resultOf(late.submitFit(program, data_, x)), "1e-09 s", "submitFit");
    expectLate(late.loss(tokens_.view(), data_, x), "1e-09 s", "population");
    expectLate(late.compile(tokens_.view()), "1e-09 s", "compile");
    // Nothing that failed was kept.
    expectSameLosses(engine_.loss(program, data_, x).value(), expected_, "after that");
    EXPECT_TRUE(engine_.gradient(program, data_, x));
  }
}

TEST_P(MachineCalls, CountNodes) {
  const std::size_t nodes = tokens_.codes.size(), count = w_.expressions.size();
  const Engine fewer = engine_.withLimits({.max_call_nodes = nodes - 1}).value();
  const Program refused = fewer.compile(w_.expressions);
  expectAllRefused(refused, count, "call");
  EXPECT_THAT(refused.failures()[0].error.message,
              AllOf(HasSubstr(fmt::format("{} nodes", nodes)), HasSubstr(fmt::format("at most {}", nodes - 1)),
                    HasSubstr("max_call_nodes")));
  EXPECT_EQ(fewer.compile(tokens_.view()).error().code, Errc::kLimit);
  EXPECT_EQ(fewer.loss(tokens_.view(), data_, w_.parameters).error().code, Errc::kLimit);
  EXPECT_EQ(fewer.submitLoss(tokens_.view(), data_, w_.parameters).error().code, Errc::kLimit);
  const std::span<const double> own = std::span(w_.parameters).first(w_.expressions[0].parameterCount());
  EXPECT_TRUE(fewer.loss(fewer.compile(std::span(w_.expressions).first(1)), data_, own)) << "it stays usable";
  EXPECT_TRUE(engine_.withLimits({.max_call_nodes = nodes}).value().compile(w_.expressions).failures().empty());
  const Engine shorter = engine_.withLimits({.max_nodes = 20}).value();
  std::vector<double> fitting;  // parameters of expressions that are short enough
  for (std::size_t first = 0; const Expression& expression : w_.expressions) {
    const auto its = std::span(w_.parameters).subspan(first, expression.parameterCount());
    if (expression.size() <= 20) fitting.insert(fitting.end(), its.begin(), its.end());
    first += its.size();
  }
  const Losses losses = shorter.loss(shorter.compile(w_.expressions), data_, fitting).value();
  expectSameReasons(shorter.loss(tokens_.view(), data_, fitting).value().failures, losses.failures);
  std::size_t longer = 0;
  for (std::size_t e = 0; e < count; ++e) {
    const std::size_t size = w_.expressions[e].size();
    if (size <= 20) {
      EXPECT_TRUE(sameBits(losses.values[e], expected_.values[e])) << e;
      continue;
    }
    ASSERT_LT(longer, losses.failures.size());
    const Failure& failure = losses.failures[longer++];
    EXPECT_EQ(failure.expression, e);
    EXPECT_EQ(failure.error.code, Errc::kLimit);
    EXPECT_THAT(failure.error.message,
                AllOf(HasSubstr(fmt::format("{} nodes", size)), HasSubstr("at most 20"), HasSubstr("max_nodes")));
    EXPECT_TRUE(std::isnan(losses.values[e]));
  }
  EXPECT_GT(longer, 0U);
  EXPECT_EQ(losses.failures.size(), longer);
}

TEST_P(MachineCalls, RefuseWhatDoesNotFit) {
  const Program program = engine_.compile(w_.expressions);
  const std::string all = std::to_string(w_.parameters.size());
  std::vector<double> wide(out_.size()), more = w_.parameters;
  more.push_back(1);
  const auto messageOf = [](const auto& result) { return result.ok() ? "no error" : result.error().message; };
  const std::string needs = " parameters, but the program has " + all;
  for (const auto& given : {std::span<const double>(more), std::span<const double>(more).first(3)}) {
    const std::string message = std::to_string(given.size()) + needs;
    EXPECT_EQ(messageOf(engine_.loss(program, data_, given)), message);
    EXPECT_EQ(messageOf(engine_.gradient(program, data_, given)), message);
    EXPECT_EQ(messageOf(engine_.evaluate(program, data_, given, std::span(out_))), message);
    EXPECT_EQ(messageOf(engine_.loss(tokens_.view(), data_, given)), message);
  }
  EXPECT_THAT(messageOf(engine_.fit(program, data_, more)), HasSubstr("expected a multiple of the program's " + all));
  EXPECT_EQ(messageOf(engine_.evaluate(program, data_, w_.parameters, std::span(out_).first(7))),
            "output of 7 numbers, expected 20 expressions x 300 rows");
  EXPECT_EQ(messageOf(engine_.jacobian(program, data_, w_.parameters, std::span(out_).first(7))),
            fmt::format("output of 7 numbers, expected {} derivatives for each of 300 rows", all));
  EXPECT_EQ(messageOf(engine_.evaluate(program, data_, w_.parameters, std::span(wide))),
            "output in f64, but the engine computes in f32");
  const Dataset plain = engine_.upload({.columns = w_.view().columns}).value();
  EXPECT_EQ(messageOf(engine_.loss(program, plain, w_.parameters)), "a loss of data without a target");
  EXPECT_THAT(messageOf(engine_.gradient(program, plain, w_.parameters)), HasSubstr("without a target"));
  EXPECT_EQ(messageOf(engine_.loss(tokens_.view(), plain, w_.parameters)), "a loss of data without a target");
  std::vector<std::int64_t> wrong = tokens_.offsets;
  wrong.back() -= 2;
  EXPECT_EQ(messageOf(engine_.compile(PopulationView{tokens_.codes, tokens_.constants, wrong})),
            fmt::format("the last offset is {}, but there are {} tokens", wrong.back(), tokens_.codes.size()));
  const Engine other = cpuEngine(Precision::kF64);
  EXPECT_EQ(messageOf(other.evaluate(program, data_, w_.parameters, std::span(wide))),
            "a program in f32, but the engine computes in f64");
  const Dataset of_other = other.upload(w_.view()).value();
  for (const LossKind kind : {LossKind::kMse, LossKind::kHuber, LossKind::kScaledMse}) {
    EXPECT_EQ(messageOf(engine_.loss(program, of_other, w_.parameters, {.kind = kind})),
              "data in f64, but the engine computes in f32");
    const Result<Losses> of_population = engine_.loss(tokens_.view(), of_other, w_.parameters, {.kind = kind});
    EXPECT_EQ(messageOf(of_population), "data in f64, but the engine computes in f32");
  }
  EXPECT_EQ(messageOf(engine_.rows(of_other, 0, 1)), "data in f64, but the engine computes in f32");
  if (machine_.kind.gpus > 0) {
    const Dataset on_cpu = cpu_.upload(w_.view()).value();
    EXPECT_THAT(messageOf(engine_.loss(program, on_cpu, w_.parameters)), HasSubstr("the engine's device is cuda:0"));
    EXPECT_THAT(messageOf(engine_.rows(on_cpu, 0, 1)), HasSubstr("the engine's device is cuda:0"));
  }
  Workload w = w_;
  w.target[7] = std::nan("");
  EXPECT_THAT(messageOf(engine_.upload(w.view())), HasSubstr("target nan in row 8"));
  expectSameLosses(engine_.loss(program, data_, w_.parameters).value(), expected_, "the engine goes on");
}

// Arrays, parameters, the program, the data and the engine are gone before results are taken.
TEST_P(MachineCalls, InFlightTogether) {
  std::vector<std::vector<double>> steps;
  std::vector<Pending<Losses>> losses, populations;
  std::optional<Engine> engine = machine_.engine();
  std::optional<Program> program = engine->compile(w_.expressions, {.tier = Tier::kInterpret});
  std::optional<Dataset> data = engine->upload(w_.view()).value();
  for (int step = 0; step < 6; ++step) {
    steps.push_back(w_.parameters);
    for (double& parameter : steps.back()) parameter += 0.5 * step;
    std::vector<double> borrowed = steps.back();
    const TokenArrays arrays = tokens_;
    losses.push_back(engine->submitLoss(*program, *data, borrowed).value());
    populations.push_back(engine->submitLoss(arrays.view(), *data, borrowed).value());
    std::ranges::fill(borrowed, 0.0);
  }
  auto predictions = engine->submitEvaluate(*program, *data, w_.parameters, std::span(out_)).value();
  auto gradients = engine->submitGradient(*program, *data, w_.parameters).value();
  {
    std::vector<float> dropped(out_.size());
    const auto not_taken = engine->submitEvaluate(*program, *data, w_.parameters, std::span(dropped)).value();
    const auto fits = engine->submitFit(*program, *data, w_.parameters).value();
  }
  program.reset();
  data.reset();
  engine.reset();
  for (std::size_t step = steps.size(); step-- > 0;) {
    Workload w = w_;
    w.parameters = steps[step];
    const Losses expected = lossesOf(cpu_, w, Tier::kInterpret, {});
    losses[step].wait();
    EXPECT_TRUE(losses[step].ready());
    expectSameLosses(std::move(losses[step]).result().value(), expected, "in flight");
    expectSameLosses(std::move(populations[step]).result().value(), expected, "a population in flight");
  }
  EXPECT_TRUE(std::move(predictions).result().value().empty());
  expectSameBits(std::vector<double>(out_.begin(), out_.end()), predict(cpu_, w_, Tier::kInterpret), w_.rows(),
                 "in flight");
  expectSameGradients(std::move(gradients).result().value(), gradientsOf(cpu_, w_, Tier::kInterpret, {}), "in flight");
}

TEST_P(MachineCalls, OfManyThreads) {
  // On several GPUs, direct code would first be tested on each kind of them.
  const double evaluations = machine_.kind.gpus > 1 ? 0 : 1e9;
  const Program shared = engine_.compile(w_.expressions, {.tier = Tier::kInterpret});
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < 6; ++t) {
    threads.emplace_back([&, t] {
      const Workload w = withShares(workload(50 + t, 15, 200 + t));
      const Losses expected = lossesOf(cpu_, w, Tier::kInterpret, {});
      const std::vector<double> predictions = predict(cpu_, w, Tier::kInterpret);
      const Dataset data = engine_.upload(w.view()).value();
      for (std::size_t round = 0; round < 4; ++round) {
        const Tier tier = round % 2 == 0 ? Tier::kAuto : Tier::kCompile;
        const Program program = engine_.compile(w.expressions, {.tier = tier, .expected_evaluations = evaluations});
        auto first = engine_.submitLoss(program, data, w.parameters);
        ASSERT_TRUE(first.ok()) << first.error().message;
        expectSameBits(predict(engine_, program, data, w.parameters), predictions, w.rows(), "threads");
        const LossInfo& info = allLosses()[(t + round) % allLosses().size()];
        EXPECT_TRUE(engine_.loss(program, data, w.parameters, {info.kind, kNanPolicies[round % 3]}).ok());
        expectSameLosses(std::move(*first).result().value(), expected, "threads");
        expectSameLosses(engine_.loss(shared, data_, w_.parameters).value(), expected_, "one program");
        (void)program.status();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Threads of the parent are not in the child: of an engine, of evaluations in flight and of a fit.
TEST_P(MachineCalls, AreErrorsInTheChildOfAFork) {
  std::optional<Engine> engine = machine_.engine();
  std::optional<Dataset> data = engine->upload(w_.view()).value();
  std::optional<Program> program = engine->compile(w_.expressions, {.tier = Tier::kInterpret});
  std::optional<Pending<Losses>> pending = engine->submitLoss(*program, *data, w_.parameters).value();
  std::optional<Pending<Fits>> fits = engine->submitFit(*program, *data, w_.parameters).value();
  const auto child = [&] {
    constexpr unsigned kSeconds = 60;
    alarm(kSeconds);  // instead of hanging for ever
    const auto isTold = [](const auto& result) {
      return !result && result.error().code == Errc::kMachine &&
             result.error().message == "an engine that was made before this process was forked";
    };
    if (!isTold(engine->upload(w_.view()))) return 1;
    if (!isTold(engine->rows(*data, 0, 1)) || !isTold(engine->sample(*data, 1, 1))) return 10;
    if (!isTold(engine->withWeights(*data, w_.target))) return 11;
    if (!isTold(engine->loss(*program, *data, w_.parameters))) return 2;
    if (!isTold(engine->evaluate(*program, *data, w_.parameters, std::span(out_)))) return 3;
    if (!isTold(engine->prepare(*program, *data, LossOptions{}))) return 4;
    if (!isTold(engine->submitLoss(*program, *data, w_.parameters))) return 5;
    const Program made = engine->compile(w_.expressions, {.tier = Tier::kCompile, .data = &*data});
    if (made.failures().size() != w_.expressions.size() || made.failures()[0].error.code != Errc::kMachine) return 6;
    // More than one block of a population, which other threads would fill in the parent.
    const std::vector<Expression> many(3 * Population::kBlock, w_.expressions[0]);
    if (engine->compile(many).failures().size() != many.size()) return 9;
    if (!pending->ready() || !isTold(std::move(*pending).result())) return 7;
    fits->wait();
    if (!fits->ready() || std::move(*fits).result().ok()) return 12;
    if (engine->cacheStats().misses != 0) return 8;
    fits.reset();
    pending.reset();
    program.reset();
    data.reset();
    engine.reset();
    return 0;
  };
  EXPECT_EQ(ended(startChild(child)), 0);
  expectSameLosses(std::move(*pending).result().value(), expected_, "in flight at the fork");
  EXPECT_EQ(std::move(*fits).result().value().statuses.size(), w_.expressions.size());
  expectSameLosses(engine->loss(*program, *data, w_.parameters).value(), expected_, "in the parent, later");
}

}  // namespace
}  // namespace srjit
