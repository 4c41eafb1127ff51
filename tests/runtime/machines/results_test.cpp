// Results of every machine: the bits of the processor's interpreter.
#include <algorithm>
#include <cmath>

#include "tests/generators/graphs.h"
#include "tests/generators/selections.h"
#include "tests/runtime/machines/fixture.h"

namespace srjit {
namespace {

INSTANTIATE_TEST_SUITE_P(Processor, Machines, inSingle(kProcessor, kSubmitted), nameOfMachine);
INSTANTIATE_TEST_SUITE_P(InDouble, Machines, inDouble(kProcessor, kC, kSubmittedThroughC, kTwoGpus), nameOfMachine);
INSTANTIATE_TEST_SUITE_P(Gpu, Machines, inSingle(kOneGpu), nameOfMachine);
INSTANTIATE_TEST_SUITE_P(GpuInDouble, Machines, inDouble(kOneGpu), nameOfMachine);
INSTANTIATE_TEST_SUITE_P(SubmittedToGpu, Machines, inSingle(kSubmittedToGpu), nameOfMachine);
INSTANTIATE_TEST_SUITE_P(Gpus, Machines, inSingle(kThreeGpus, kEightGpus, kSubmittedToGpus), nameOfMachine);
INSTANTIATE_TEST_SUITE_P(StreamingGpu, Machines, inSingle(kStreamingGpu), nameOfMachine);
INSTANTIATE_TEST_SUITE_P(Streaming, Machines, inDouble(kStreamingGpus), nameOfMachine);
INSTANTIATE_TEST_SUITE_P(ThroughC, Machines, inSingle(kC, kSubmittedThroughC), nameOfMachine);

TEST_P(Machines, Predict) {
  const Engine engine = machine_.engine();
  const auto programs = programsOf(engine, workload(1, 60, 1).expressions);
  for (const std::size_t rows : machine_.rows()) {
    const Workload w = workload(1, 60, rows);
    const std::vector<double> expected = predict(cpu_, w, Tier::kInterpret);
    const Dataset data = engine.upload(w.view()).value();
    for (const auto& [tier, program] : programs) {
      expectSameBits(machine_.predictions(engine, program, data, w.parameters), expected, rows, nameOf(tier));
      expectServed(program, tier);
    }
  }
}

// Of streams, those losses that read all of the data.
TEST_P(Machines, SumLosses) {
  const Engine engine = machine_.engine();
  const auto programs = programsOf(engine, workload(1, 12, 1).expressions);
  for (const auto& [rows, weighted] : {std::pair(std::size_t{1}, true), {rowsOr(129), false}, {rowsOr(362), true}}) {
    if (machine_.isStreaming() && !weighted) continue;
    const Workload w = withShares(workload(1, 12, rows, weighted));
    const Dataset data = engine.upload(w.view()).value();
    EXPECT_EQ(machine_.isStreamed(data), machine_.isStreaming() && rows > 1);
    const auto [on_cpu, of_cpu] = prepared(cpu_, w, {.tier = Tier::kInterpret});
    for (const LossInfo& info : allLosses()) {
      if (machine_.isStreaming() && !std::ranges::count(kLossesOfData, info.kind)) continue;
      for (const NanPolicy nan : kNanPolicies) {
        const LossOptions options{info.kind, nan};
        const Losses expected = cpu_.loss(of_cpu, on_cpu, w.parameters, options).value();
        for (const auto& [tier, program] : programs) {
          expectSameLosses(machine_.loss(engine, program, data, w.parameters, options), expected, info.name.data());
        }
      }
    }
    for (const auto& [tier, program] : programs) expectServed(program, tier);
  }
}

TEST_P(Machines, Differentiate) {
  const Engine engine = machine_.engine();
  const auto programs = programsOf(engine, workload(1, 25, 1).expressions);
  for (const std::size_t rows : {std::size_t{1}, rowsOr(129)}) {
    const Workload w = workload(1, 25, rows, rows > 1);
    const Dataset data = engine.upload(w.view()).value();
    const auto [on_cpu, of_cpu] = prepared(cpu_, w, {.tier = Tier::kInterpret});
    for (const DerivativesBy by : {DerivativesBy::kParameters, DerivativesBy::kVariables}) {
      const std::vector<double> jacobian = processor_.jacobian(cpu_, of_cpu, on_cpu, w.parameters, by);
      for (const auto& [tier, program] : programs) {
        expectSameBits(machine_.jacobian(engine, program, data, w.parameters, by), jacobian, rows, "jacobian");
        for (const NanPolicy nan : {NanPolicy::kPropagate, NanPolicy::kSkip}) {
          const GradientOptions options{.loss = {.kind = LossKind::kRmse, .nan = nan}, .by = by};
          expectSameGradients(machine_.gradient(engine, program, data, w.parameters, options),
                              cpu_.gradient(of_cpu, on_cpu, w.parameters, options).value(), nameOf(tier));
        }
      }
    }
  }
}

// Target and weights are staged in every section of the columns.
TEST_P(Machines, ReadManyColumns) {
  if (machine_.isStreaming()) return;
  const GeneratorOptions options{.seed = 3,
                                 .max_nodes = 30,
                                 .variables = 400,
                                 .parameters = 2,
                                 .ops = arithmeticOps(),
                                 .constant_probability = 0,
                                 .parameter_probability = 0.2};
  Workload w = Workload::random(options, 60, 200, Spread::kTame, machine_.precision);
  w.weights.assign(200, 0.5);
  const Engine engine = machine_.engine();
  const auto [data, program] = prepared(engine, w, {.tier = Tier::kInterpret});
  expectSameBits(machine_.predictions(engine, program, data, w.parameters), predict(cpu_, w, Tier::kInterpret), 200,
                 "wide");
  expectSameGradients(machine_.gradient(engine, program, data, w.parameters),
                      gradientsOf(cpu_, w, Tier::kInterpret, {}), "wide");
}

// Two starts each.
TEST_P(Machines, Fit) {
  const Workload w = withShares(fitWorkload(machine_.isStreaming() ? 6 : 30, rowsOr(200), machine_.precision));
  std::vector<double> starts = w.parameters;
  for (const double parameter : w.parameters) starts.push_back(0.5 * parameter + 0.1);
  const Engine engine = machine_.engine();
  const Dataset data = engine.upload(w.view()).value();
  const auto [on_cpu, of_cpu] = prepared(cpu_, w, {.tier = Tier::kInterpret});
  for (const auto& [tier, program] : programsOf(engine, w.expressions)) {
    for (const LossOptions& loss : {LossOptions{}, LossOptions{.kind = LossKind::kScaledR2},
                                    LossOptions{.kind = LossKind::kHuber, .nan = NanPolicy::kSkip},
                                    LossOptions{.kind = LossKind::kMae, .nan = NanPolicy::kReject},
                                    LossOptions{.kind = LossKind::kLogLoss}, lossBy("abs(f - y)^1.5")}) {
      const FitOptions options{.loss = loss, .iterations = machine_.isStreaming() ? 4U : 12U};
      FitOptions bounded = options;
      bounded.bounds = {{0.2, 0.7}, {}, {-HUGE_VAL, 0.5}};
      for (const FitOptions& either : {options, bounded}) {
        expectSameFits(machine_.fit(engine, program, data, starts, either),
                       cpu_.fit(of_cpu, on_cpu, starts, either).value());
      }
      if (machine_.isStreaming() || tier != Tier::kInterpret) break;
    }
  }
}

// The columns of a quadratic over years: a machine gives the residuals and the derivatives of each row.
TEST_P(Machines, RefineFits) {
  Workload w;
  w.columns.resize(2);
  const std::size_t rows = rowsOr(500);
  for (std::size_t r = 0; r < rows; ++r) {
    const double x = 30 * static_cast<double>(r) / static_cast<double>(rows);
    w.columns[0].push_back(1990 + x);
    w.columns[1].push_back(0.1 + static_cast<double>(r % 7));
    w.target.push_back(std::sin(1.7 * x) + 0.03 * x);
    w.weights.push_back(static_cast<double>(1 + r % 3));
  }
  w.expressions = {infix("p0 + x0*(p1 + x0*p2)"), infix("p0*x1"), infix("p0 + x0*(p1 + x0*(p2 + x1*p3))")};
  w.parameters.assign(8, 1);
  const Engine engine = machine_.engine();
  const auto [on_cpu, of_cpu] = prepared(cpu_, w, {.tier = Tier::kInterpret});
  const Fits expected = cpu_.fit(of_cpu, on_cpu, w.parameters).value();
  EXPECT_EQ(expected.statuses[0], FitStatus::kConverged);
  EXPECT_TRUE(std::isfinite(expected.standard_errors[2]));
  const auto [data, program] = prepared(engine, w, {.tier = Tier::kInterpret});
  expectSameFits(machine_.fit(engine, program, data, w.parameters), expected);
}

void append(std::vector<double>& all, const std::vector<double>& some) {
  all.insert(all.end(), some.begin(), some.end());
}

// One of the expressions fails, with each vector.
TEST_P(Machines, TakeSeveralVectorsOfParameters) {
  constexpr std::size_t kVectors = 5, kFails = 3;
  Workload w = withShares(workload(81, 20, rowsOr(300)));
  const auto variable = static_cast<std::uint32_t>(w.columns.size());
  w.expressions.insert(w.expressions.begin() + kFails,
                       build({Token::variable(variable), Token::parameter(0), Token::operation(Op::kMul)}));
  w.parameters.push_back(1);
  std::vector<double> all;
  Random random(4);
  for (std::size_t i = 0; i < kVectors * w.parameters.size(); ++i) all.push_back(random.between(-2.0, 2.0));
  const auto vector = [&](std::size_t i) {
    return std::span(all).subspan(i * w.parameters.size(), w.parameters.size());
  };
  const Engine engine = machine_.engine();
  const auto [data, program] = prepared(engine, w, {.tier = Tier::kInterpret});
  const auto [on_cpu, of_cpu] = prepared(cpu_, w, {.tier = Tier::kInterpret});
  for (const LossOptions& loss : {LossOptions{}, LossOptions{.kind = LossKind::kHuber, .nan = NanPolicy::kSkip},
                                  LossOptions{.kind = LossKind::kScaledMse}}) {
    std::vector<double> losses, derivatives;
    for (std::size_t i = 0; i < kVectors; ++i) {
      append(losses, cpu_.loss(of_cpu, on_cpu, vector(i), loss).value().values);
      append(derivatives, cpu_.gradient(of_cpu, on_cpu, vector(i), {.loss = loss}).value().derivatives);
    }
    const Losses together = machine_.loss(engine, program, data, all, loss);
    expectSameBits(together.values, losses, 1, "losses");
    ASSERT_EQ(together.failures.size(), kVectors);
    for (std::size_t i = 0; i < kVectors; ++i) {
      EXPECT_EQ(together.failures[i].expression, i * program.size() + kFails);
    }
    expectSameBits(machine_.gradient(engine, program, data, all, {.loss = loss}).derivatives, derivatives, 1, "slopes");
  }
  std::vector<double> predictions, jacobian;
  std::vector<Failure> failures;
  for (std::size_t i = 0; i < kVectors; ++i) {
    append(predictions, predict(cpu_, of_cpu, on_cpu, vector(i), &failures));
    append(jacobian, processor_.jacobian(cpu_, of_cpu, on_cpu, vector(i), DerivativesBy::kParameters));
  }
  expectSameBits(machine_.predictions(engine, program, data, all, &failures), predictions, w.rows(), "predictions");
  expectSameBits(machine_.jacobian(engine, program, data, all, DerivativesBy::kParameters), jacobian, w.rows(),
                 "jacobian");
}

/// A population with expressions that fail, in different parts: one that is not valid, and two of a column that the
/// data lack.
TokenArrays withFailures(const std::vector<Expression>& expressions, Notation notation) {
  const std::size_t last = expressions.size() - 1;
  TokenArrays arrays;
  for (std::size_t e = 0; e <= last; ++e) {
    notation == Notation::kPrefix ? arrays.addPrefix(expressions[e]) : arrays.addPostfix(expressions[e]);
    if (e == 1) arrays.add(Token::operation(Op::kNeg));
    if (e == last / 2 || e == last) arrays.add(Token::variable(77));
    if (e == 1 || e == last / 2 || e == last) arrays.end();
  }
  return arrays;
}

TEST_P(Machines, SumLossesOfPopulationsInParts) {
  const Workload w = workload(61, 200, rowsOr(150));
  const TokenArrays postfix = withFailures(w.expressions, Notation::kPostfix);
  const TokenArrays prefix = withFailures(w.expressions, Notation::kPrefix);
  const Dataset on_cpu = cpu_.upload(w.view()).value();
  const Program of_cpu = cpu_.compile(postfix.view(), {.tier = Tier::kInterpret}).value();
  for (const std::size_t parts : {0, 1, 2, 3, 7, 64, 1000}) {
    if (parts > 3 && (machine_.kind.gpus != 1 || machine_.isStreaming())) break;
    if (machine_.model) machine_.model->population_parts = parts;
    for (const Tier tier : {Tier::kAuto, Tier::kInterpret, Tier::kCompile}) {
      const Engine engine = machine_.engine({.tier = tier});
      const Dataset data = engine.upload(w.view()).value();
      for (const LossKind kind : {LossKind::kRmse, LossKind::kScaledMse, LossKind::kHuber}) {
        const LossOptions options{.kind = kind, .nan = parts == 3 ? NanPolicy::kPropagate : NanPolicy::kSkip};
        const Losses expected = cpu_.loss(of_cpu, on_cpu, w.parameters, options).value();
        ASSERT_EQ(expected.failures.size(), 3U);
        const auto lossOf = [&](const PopulationView& view) {
          return machine_.kind.is_submitted
                     ? engine.submitLoss(view, data, w.parameters, options).value().result().value()
                     : engine.loss(view, data, w.parameters, options).value();
        };
        const Losses losses = lossOf(postfix.view());
        expectSameLosses(losses, expected, "population");
        expectSameReasons(losses.failures, expected.failures);
        expectSameLosses(lossOf(prefix.view(Notation::kPrefix)), expected, "in prefix");
      }
      EXPECT_TRUE(engine.loss(PopulationView{}, data, {}).value().values.empty());
      if (parts > 7 || machine_.kind.gpus == 0) break;  // one tier is enough for many launches
    }
    if (machine_.kind.gpus == 0) break;
  }
  const Engine engine = machine_.engine();
  const Program program = engine.compile(postfix.view()).value();
  EXPECT_EQ(program.failures().size(), 1U);
  expectSameLosses(machine_.loss(engine, program, engine.upload(w.view()).value(), w.parameters),
                   cpu_.loss(of_cpu, on_cpu, w.parameters).value(), "program");
}

TEST_P(Machines, FailOnlyExpressionsOfMissingColumns) {
  const Engine engine = machine_.engine();
  Workload w = workload(12, 20, rowsOr(100));
  w.columns.resize(3);
  const Losses expected = lossesOf(cpu_, w, Tier::kInterpret, {});
  const Dataset data = engine.upload(w.view()).value();
  for (const Tier tier : machine_.tiers()) {
    const Program program = engine.compile(w.expressions, {.tier = tier, .deferred = tier == Tier::kInterpret});
    EXPECT_TRUE(program.failures().empty());
    const Losses got = machine_.loss(engine, program, data, w.parameters);
    expectSameLosses(got, expected, "data of three columns");
    ASSERT_FALSE(got.failures.empty());
    expectSameReasons(got.failures, expected.failures);
    std::vector<Failure> failures;
    machine_.predictions(engine, program, data, w.parameters, &failures);
    expectSameReasons(failures, expected.failures);
  }
}

// The rules of `strict` are exact, so these are the bits of the simplified expressions.
TEST_P(Machines, EvaluateExpressionsAsTheyAreWritten) {
  const Engine engine = machine_.engine();
  for (const std::size_t rows : machine_.rows()) {
    const Workload w = workload(31, 150, rows);
    const Losses losses = lossesOf(cpu_, w, Tier::kInterpret, {});
    const std::vector<double> predictions = predict(cpu_, w, Tier::kInterpret);
    const Dataset data = engine.upload(w.view()).value();
    for (const Tier tier : machine_.tiers()) {
      const Program program = engine.compile(w.expressions, {.tier = tier, .simplify = false});
      EXPECT_GT(program.info().nodes_after, engine.compile(w.expressions, {.tier = tier}).info().nodes_after);
      expectSameLosses(machine_.loss(engine, program, data, w.parameters), losses, "as written");
      expectSameBits(machine_.predictions(engine, program, data, w.parameters), predictions, rows, "as written");
    }
    if (machine_.isStreaming()) continue;
    const Program program = engine.compile(w.expressions, {.simplify = false});
    const Program simplified = engine.compile(w.expressions);
    for (const LossKind kind : {LossKind::kScaledNmse, LossKind::kMse}) {
      expectSameLosses(machine_.gradient(engine, program, data, w.parameters, {.loss = {.kind = kind}}).losses,
                       machine_.loss(engine, simplified, data, w.parameters, {.kind = kind}), "beside derivatives");
      expectSameLosses(machine_.loss(engine, program, data, w.parameters, {.kind = kind}),
                       machine_.loss(engine, simplified, data, w.parameters, {.kind = kind}), "loss");
    }
  }
}

// Both make a program of the first expression: one with a factor and an offset, and one for data of fewer columns.
TEST_P(Machines, GiveScaledLossesBesideDataOfFewerColumns) {
  const Engine engine = machine_.engine();
  Workload wide = workload(3, 0, rowsOr(100));
  wide.expressions = infixes(std::array<std::string_view, 2>{"x0 + 1000", "x1"});
  wide.parameters.clear();
  wide.columns.assign(2, {});
  wide.target.clear();
  wide.weights.clear();
  for (std::size_t r = 0; r < rowsOr(100); ++r) {
    wide.columns[0].push_back(0.01 * static_cast<double>(r % 64));
    wide.columns[1].push_back(std::sin(static_cast<double>(r)));
    wide.target.push_back(std::cos(static_cast<double>(r)));
  }
  Workload narrow = wide;
  narrow.columns.pop_back();
  const LossOptions scaled{.kind = LossKind::kScaledMse};
  const Losses of_wide = lossesOf(cpu_, wide, Tier::kInterpret, scaled);
  const Losses of_narrow = lossesOf(cpu_, narrow, Tier::kInterpret, {});
  const Dataset data = engine.upload(wide.view()).value(), few = engine.upload(narrow.view()).value();
  for (const bool first_scaled : {true, false}) {
    const Program program = engine.compile(wide.expressions);
    for (const bool is_scaled : {first_scaled, !first_scaled}) {
      if (is_scaled) expectSameLosses(machine_.loss(engine, program, data, {}, scaled), of_wide, "scaled");
      if (!is_scaled) expectSameLosses(machine_.loss(engine, program, few, {}), of_narrow, "fewer columns");
    }
  }
}

TEST_P(Machines, TakeFewExpressionsOrNone) {
  const Engine engine = machine_.engine();
  for (const std::size_t count : {0, 1, 2, 5}) {
    const Workload w = workload(19, count, rowsOr(60));
    const Losses losses = lossesOf(cpu_, w, Tier::kInterpret, {});
    const std::vector<double> predictions = predict(cpu_, w, Tier::kInterpret);
    const Dataset data = engine.upload(w.view()).value();
    for (const Tier tier : {Tier::kInterpret, Tier::kCompile, Tier::kAuto}) {
      const Program program = engine.compile(w.expressions, {.tier = tier});
      EXPECT_TRUE(engine.prepare(program, data, LossOptions{}).ok());
      EXPECT_TRUE(engine.prepare(program, data, {}).ok());
      expectSameLosses(machine_.loss(engine, program, data, w.parameters), losses, "few");
      expectSameBits(machine_.predictions(engine, program, data, w.parameters), predictions, w.rows(), "few");
      EXPECT_EQ(machine_.gradient(engine, program, data, w.parameters).losses.values.size(), count);
      EXPECT_EQ(machine_.fit(engine, program, data, w.parameters, {.iterations = 2}).statuses.size(), count);
    }
  }
}

// Each first evaluation of a program whose code is not made yet.
TEST_P(Machines, MakeDeferredProgramsAtTheFirstEvaluation) {
  const Engine engine = machine_.engine({.tier = Tier::kInterpret});
  const Workload w = workload(23, 10, rowsOr(100));
  const Dataset data = engine.upload(w.view()).value();
  std::vector<double> twice = w.parameters;
  append(twice, w.parameters);
  const auto expectSame = [&](const auto& evaluate) {
    const Program deferred = engine.compile(w.expressions, {.deferred = true});
    EXPECT_EQ(deferred.info().nodes_after, 0U);
    EXPECT_EQ(deferred.status().evaluations, 0U);
    const std::vector<double> values = evaluate(deferred);
    ASSERT_FALSE(values.empty());
    expectSameBits(values, evaluate(engine.compile(w.expressions)), 1, "deferred");
    expectSameBits(evaluate(deferred), values, 1, "again");
  };
  expectSame([&](const Program& p) { return machine_.loss(engine, p, data, w.parameters).values; });
  expectSame([&](const Program& p) { return machine_.loss(engine, p, data, twice).values; });
  expectSame([&](const Program& p) { return machine_.gradient(engine, p, data, w.parameters).derivatives; });
  expectSame(
      [&](const Program& p) { return machine_.fit(engine, p, data, w.parameters, {.iterations = 3}).parameters; });
  expectSame([&](const Program& p) {
    EXPECT_TRUE(engine.prepare(p, data, LossOptions()).ok());
    return machine_.predictions(engine, p, data, w.parameters);
  });
}

}  // namespace
}  // namespace srjit
