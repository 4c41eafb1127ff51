// Invalid arguments of an engine, and many threads on one engine.
#include <limits>
#include <thread>

#include <tbb/task_arena.h>

#include "tests/generators/workload.h"

#include "ir/losses.h"
#include "ir/ops.h"
#include "runtime/host/executor.h"
#include "tests/generators/data.h"
#include "tests/runtime/gpu/failing_memory.h"

namespace srjit {
namespace {

Error errorOf(const EngineOptions& options) {
  const Result<Engine> engine = Engine::create(options);
  return engine.ok() ? Error{Errc::kInvalid, "no error", {}} : engine.error();
}

TEST(EngineCreate, ReportsInvalidDevicesAndThreads) {
  EXPECT_EQ(errorOf({.device = "gpu"}).message,
            "device 'gpu', expected auto, cpu, cuda:N, a list as cuda:0,2, or cuda:all");
  EXPECT_EQ(errorOf({.device = "cuda:97"}).code, Errc::kMachine);
  EXPECT_EQ(errorOf({.threads = 5000}).message, "5000 threads, expected at most 1024");
}

TEST(EngineCreate, ReportsTheNumberOfThreads) {
  const auto available = static_cast<unsigned>(tbb::this_task_arena::max_concurrency());
  EXPECT_EQ(Engine::create({.threads = 1}).value().options().threads, 1U);
  EXPECT_EQ(Engine::create({.threads = 3}).value().options().threads, std::min(3U, available));
  EXPECT_EQ(Engine::create({.threads = 1000}).value().options().threads, std::min(1000U, available));
  EXPECT_EQ(Engine::create({}).value().options().threads, available);
}

class Upload : public testing::Test {
 protected:
  Engine engine_ = Engine::create({}).value();
  Engine wide_ = Engine::create({.precision = Precision::kF64}).value();
  std::string messageOf(const Workload& w) { return messageOf(engine_, w.view()); }
  static std::string messageOf(const Engine& engine, const DataView& view) {
    const Result<Dataset> data = engine.upload(view);
    if (data.ok()) return "no error";
    EXPECT_EQ(data.error().code, Errc::kInvalid);
    return data.error().message;
  }
  Workload w_{.columns = {{1, 2}, {3, 4}}, .target = {1, 2}, .weights = {1, 1}};
};

TEST_F(Upload, ChecksSizes) {
  EXPECT_EQ(messageOf(w_), "no error");
  w_.columns[1].push_back(5);
  EXPECT_EQ(messageOf(w_), "column x1 has 3 rows, expected 2 rows, as x0 has");
  w_.columns[1].resize(2);
  w_.target.push_back(5);
  EXPECT_EQ(messageOf(w_), "the target has 3 rows, expected 2 rows, as x0 has");
  w_.target.resize(2);
  w_.weights.push_back(5);
  EXPECT_EQ(messageOf(w_), "the weights have 3 rows, expected 2 rows, as x0 has");
  EXPECT_EQ(messageOf({}), "data without rows");
  EXPECT_EQ(messageOf({.columns = {{}}}), "data without rows");
}

TEST_F(Upload, MessagesNameTheColumns) {
  DataView view = w_.view();
  view.names = {"mass"};
  EXPECT_EQ(messageOf(engine_, view), "1 name for 2 columns: expected none, or one for each");
  view.names = {"mass", "speed"};
  EXPECT_EQ(messageOf(engine_, view), "no error");
  w_.columns[1].push_back(5);
  view = w_.view();
  view.names = {"mass", "speed"};
  EXPECT_EQ(messageOf(engine_, view), "column 'speed' (x1) has 3 rows, expected 2 rows, as column 'mass' (x0) has");
}

// The code for such data sets is made once for each number of columns; the names are those of the data.
TEST_F(Upload, FailuresNameTheColumnsThereAre) {
  const Program program = engine_.compile(infixes({"x7", "x0"}));
  const auto failureWith = [&](ColumnNames names) {
    DataView view = w_.view();
    view.names = std::move(names);
    return engine_.loss(program, engine_.upload(view).value(), {}).value().failures.at(0).error.message;
  };
  EXPECT_EQ(failureWith({"mass", "net weight"}), "variable x7, but the data has 2 variables: mass, 'net weight'");
  EXPECT_EQ(failureWith({"a", "b"}), "variable x7, but the data has 2 variables: a, b");
  EXPECT_EQ(failureWith({}), "variable x7, but the data has 2 variables");
}

TEST_F(Upload, ChecksWeights) {
  w_.weights = {1, -0.5};
  EXPECT_EQ(messageOf(w_), "weight -0.5 in row 2, expected a finite number that is not negative");
  w_.weights = {std::nan(""), 1};
  EXPECT_EQ(messageOf(w_), "weight nan in row 1, expected a finite number that is not negative");
  w_.weights = {1, kInfinity};
  EXPECT_EQ(messageOf(w_), "weight inf in row 2, expected a finite number that is not negative");
  w_.weights = {0, 0};
  EXPECT_EQ(messageOf(w_), "the weights are all zero");
  EXPECT_EQ(messageOf(wide_, w_.view()), "the weights are all zero");
}

TEST_F(Upload, ReportsWeightsAsGiven) {
  w_.weights = {1e300, 1};
  EXPECT_EQ(messageOf(w_),
            "the column of weights has 1e+300 in row 1, which is beyond the range of f32: choose f64, or another unit");
  EXPECT_EQ(messageOf(wide_, w_.view()), "no error");
  w_.weights = {0, 1e-60};
  EXPECT_EQ(
      messageOf(w_),
      "the column of weights has 1e-60 in row 2, and all of its numbers are below the normal range of f32: choose "
      "f64, or another unit");
  EXPECT_EQ(messageOf(wide_, w_.view()), "no error");
  const std::vector<float> given{1, -0.1F};
  DataView view = w_.view();
  view.weights.emplace(given);
  EXPECT_EQ(messageOf(wide_, view), "weight -0.1 in row 2, expected a finite number that is not negative");
}

TEST_F(Upload, ChecksTheSumOfWeights) {
  w_.weights = {1e308, 1e308};
  EXPECT_EQ(messageOf(wide_, w_.view()), "the sum of the weights is beyond the range of f64");
  w_.weights = {3e38, 3e38};  // the sum is beyond the range of f32, but sums are in double
  EXPECT_EQ(messageOf(w_), "no error");
}

TEST_F(Upload, ChecksTheTarget) {
  w_ = {.columns = {{1, 2, 3}}, .target = {1, 2, std::nan("")}};
  EXPECT_EQ(messageOf(w_), "target nan in row 3: expected a finite number");
  EXPECT_EQ(messageOf(wide_, w_.view()), "target nan in row 3: expected a finite number");
  w_.target = {1, -kInfinity, 3};
  EXPECT_EQ(messageOf(w_), "target -inf in row 2: expected a finite number");
  w_.target = {-1e300, 2, 3};
  EXPECT_EQ(messageOf(w_),
            "the target has -1e+300 in row 1, which is beyond the range of f32: choose f64, or another unit");
  EXPECT_EQ(messageOf(wide_, w_.view()), "no error");
}

TEST_F(Upload, ColumnsMayHoldInfinitiesAndNaN) {
  w_.columns = {{std::nan(""), kInfinity}, {-kInfinity, 3}};
  w_.expressions = infixes({"x0", "x1"});
  const std::vector<double> got = predict(engine_, w_, Tier::kAuto);
  EXPECT_TRUE(std::isnan(got[0]));
  EXPECT_EQ(std::vector(got.begin() + 1, got.end()), (std::vector<double>{kInfinity, -kInfinity, 3}));
}

// A column of infinities or zeros would be another column without a word.
TEST_F(Upload, RefusesNumbersThatF32DoesNotHave) {
  w_.columns = {{1, 2}, {3, -1e39}};
  EXPECT_EQ(messageOf(w_),
            "column x1 has -1e+39 in row 2, which is beyond the range of f32: choose f64, or another unit");
  EXPECT_EQ(messageOf(wide_, w_.view()), "no error");
  w_.columns = {{std::nan(""), -1e-40}, {3, 4}};
  EXPECT_EQ(messageOf(w_),
            "column x0 has -1e-40 in row 2, and all of its numbers are below the normal range of f32: choose f64, or "
            "another unit");
  EXPECT_EQ(messageOf(wide_, w_.view()), "no error");
  w_.columns = {{1, 1e-50}, {3, 4}};
  EXPECT_EQ(messageOf(w_), "column x0 has 1e-50 in row 2, which is 0 in f32: choose f64, or another unit")
      << "its logarithm would be minus infinity";
  EXPECT_EQ(messageOf(wide_, w_.view()), "no error");
  w_.columns = {{1e-40, 1}, {0, -kInfinity}};
  EXPECT_EQ(messageOf(w_), "no error") << "1e-40 is a subnormal number";
  w_.target = {1e-50, 0};
  EXPECT_EQ(messageOf(w_),
            "the target has 1e-50 in row 1, and all of its numbers are below the normal range of f32: choose f64, or "
            "another unit");
  const std::vector<float> given{1e-40F, 0};
  DataView view = w_.view();
  view.target.emplace(given);
  EXPECT_EQ(messageOf(engine_, view), "no error") << "given in f32";
  w_.target = {1e-40F, 0};
  EXPECT_EQ(messageOf(w_), "no error") << "is a number of f32";
  w_.target = {0, 0};
  EXPECT_EQ(messageOf(w_), "no error");
}

TEST_F(Upload, RefusesNumbersThatF32DoesNotTellApart) {
  w_ = {.columns = {{1e9, 1e9 + 1, 1e9 + 2}}, .target = {1e6, 1e6 + 0.1, 1e6 + 0.2}, .weights = {1, 1 + 1e-9, 1}};
  EXPECT_EQ(messageOf(w_),
            "column x0 has 1000000001 in row 2, and all of its numbers are so near to each other that f32 cannot tell "
            "them apart: choose f64, or subtract an offset");
  EXPECT_EQ(messageOf(wide_, w_.view()), "no error");
  w_.columns = {{1e9, 1e9 + 64, 1e9 + 128}};
  EXPECT_EQ(messageOf(w_),
            "the target has 1000000.1 in row 2, and all of its numbers are so near to each other that f32 cannot tell "
            "them apart: choose f64, or subtract an offset")
      << "the column has numbers of f32";
  w_.target = {0.1, 0.1 + 1e-17, 0.1 + 3e-17};
  EXPECT_EQ(messageOf(w_), "no error") << "numbers that differ by rounding; near weights do no harm";
}

TEST_F(Upload, OutOfMemoryIsAnError) {
  // A view of more rows than memory has bytes: its data are not read before the copy is allocated.
  const std::vector<double> one{1};
  DataView view;
  ColumnView column = std::span<const double>(one);
  column.size = std::size_t{1} << 60;
  view.columns = {column};
  const Result<Dataset> data = engine_.upload(view);
  ASSERT_FALSE(data.ok());
  EXPECT_EQ(data.error().code, Errc::kMachine);
  EXPECT_TRUE(data.error().message.starts_with("out of memory: ")) << data.error().message;
  EXPECT_TRUE(data.error().message.ends_with(" bytes wanted")) << data.error().message;
}

TEST_F(Upload, CopiesItsInput) {
  const Dataset data = engine_.upload(w_.view()).value();
  w_.columns[0][0] = 100;
  const Program program = engine_.compile(infixes({"x0"}));
  EXPECT_EQ(predict(engine_, program, data, {}), (std::vector<double>{1, 2}));
  EXPECT_EQ(data.rows(), 2U);
  EXPECT_EQ(data.columns(), 2U);
}

/// Two rows of one column.
Workload twoRows(std::string_view text) {
  return {.expressions = infixes({text}), .columns = {{1, 2}}, .target = {1, 2}};
}

// RefuseWhatDoesNotFit of tests/runtime/machines has other sizes and precisions.
TEST(EngineEvaluate, ChecksTheMath) {
  const Engine engine = Engine::create({}).value(), fast = Engine::create({.math = Math::kFast}).value();
  const Workload w = twoRows("p1");
  const auto [data, program] = prepared(engine, w);
  std::vector<float> out(2);
  const std::vector<double> parameters(2);
  const std::string expected = "a program in precise, but the engine computes in fast";
  EXPECT_EQ(fast.evaluate(program, data, parameters, std::span(out)).error().message, expected);
  EXPECT_EQ(fast.loss(program, data, parameters).error().message, expected);
  EXPECT_TRUE(fast.loss(fast.compile(w.expressions), data, parameters).ok());
}

/// Has the allocation of `message` fail in `call`, which reports that error, and expects the error of exhausted memory.
template <class Call>
void expectNoMemoryFor(const std::string& message, const Call& call) {
  const FailingMemory failing(message.size() + 1, 1);
  const auto result = call();
  ASSERT_TRUE(failing.failed()) << message;
  ASSERT_FALSE(result.ok()) << message;
  EXPECT_EQ(result.error().code, Errc::kMachine) << message;
  EXPECT_EQ(result.error().message, "out of memory") << message;
}

TEST(EngineMemory, NoneForTheMessageOfAnErrorIsAnError) {
  if (!kMemoryCanFail) GTEST_SKIP() << "allocations belong to the sanitizer";
  const Engine engine = Engine::create({}).value();
  const Workload w = twoRows("x0");
  const auto [data, program] = prepared(engine, w);
  std::vector<float> out(1);
  const auto expectGuarded = [](const auto& call) { expectNoMemoryFor(call().error().message, call); };
  expectGuarded([&] { return engine.evaluate(program, data, {}, std::span<float>(out)); });
  expectGuarded([&] { return engine.submitEvaluate(program, data, {}, std::span<float>(out)); });
  DataView named = w.view();
  named.names = {"mass", "speed"};
  expectGuarded([&] { return engine.upload(named); });
}

TEST(EngineMemory, NoneForAProgramItselfThrows) {
  if (!kMemoryCanFail) GTEST_SKIP() << "allocations belong to the sanitizer";
  const Engine engine = Engine::create({}).value();
  constexpr std::size_t kExpressions = 37 * Population::kBlock;  // so that nothing else is as large
  const std::vector<Expression> expressions(kExpressions, infix("x0"));
  const FailingMemory failing(37 * sizeof(Population::Block), 1);
  EXPECT_THROW(engine.compile(expressions), std::bad_alloc);
  EXPECT_TRUE(failing.failed());
}

TEST(EngineEvaluate, WithoutParametersThereIsOneVector) {
  const Engine engine = Engine::create({}).value();
  const Workload w = twoRows("x0");
  const auto [data, program] = prepared(engine, w);
  EXPECT_EQ(engine.loss(program, data, {}).value().values.size(), 1U);
  EXPECT_TRUE(engine.gradient(program, data, {}).value().derivatives.empty());
  EXPECT_EQ(engine.loss(program, data, std::vector<double>(3)).error().message, "3 parameters, but the program has 0");
}

TEST(EngineEvaluate, AProgramOutlivesItsEngine) {
  const Workload w = twoRows("sin(x0)");
  std::optional<Engine> first = Engine::create({}).value();
  const Program interpreted = first->compile(w.expressions, {.tier = Tier::kInterpret});
  const Program compiled = first->compile(w.expressions, {.tier = Tier::kCompile});
  first.reset();
  const Engine second = Engine::create({}).value();
  const Dataset data = second.upload(w.view()).value();
  expectSameBits(predict(second, interpreted, data, {}), predict(second, compiled, data, {}), 2, "tiers");
}

TEST(HostEngine, SaysWhatMakesItSlow) {
  EXPECT_EQ(missingOf({.cpu = "x86-64-v3", .features = "", .vector_bytes = 32, .has_fma = true}), "");
  EXPECT_NE(missingOf({.cpu = "nehalem", .features = ""}), "");
}

}  // namespace
}  // namespace srjit
