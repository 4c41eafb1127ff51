// Predictions come in chunks of rows and in pieces: made, copied and spread beside each other, with the bits of the CPU
// engine whatever the order in which a device does its work.
#include <algorithm>

#include "ir/ops.h"
#include "runtime/cuda/handles.h"
#include "tests/gpu_model/device_engine.h"

namespace srjit {
namespace {

struct Order {
  const char* name;
  bool lag, eager_kernels;
};

class Predictions : public testing::TestWithParam<Order> {
 protected:
  FakeOptions options() const { return {.lag = GetParam().lag, .eager_kernels = GetParam().eager_kernels}; }
};
/// Has no other threads than Predictions, and takes too long under ThreadSanitizer.
class ManyPredictions : public Predictions {};

const auto kOrders =
    testing::Values(Order{"AtOnce", false, false}, Order{"OnDemand", true, false}, Order{"KernelsFirst", true, true});
std::string orderNameOf(const testing::TestParamInfo<Order>& order) { return order.param.name; }
INSTANTIATE_TEST_SUITE_P(, Predictions, kOrders, orderNameOf);
INSTANTIATE_TEST_SUITE_P(, ManyPredictions, kOrders, orderNameOf);

TEST_P(Predictions, OfManyChunks) {
  const Workload w = arithmeticWorkload(61, 40, 9500, Precision::kF32);
  const std::vector<double> expected = predict(cpuEngine(Precision::kF32), w, Tier::kInterpret);
  // Room for two chunks, or for one; with the least, data are streamed, too.
  for (const std::uint64_t bytes : {std::uint64_t{1} << 20, std::uint64_t{200'000}, std::uint64_t{1}}) {
    FakeMachine machine(options());
    const Engine gpu = machine.engine({.math = Math::kStrict, .device_bytes = bytes});
    for (const Tier tier : {Tier::kInterpret, Tier::kCompile}) {
      expectSameBits(predict(gpu, w, tier), expected, w.rows(), tier == Tier::kInterpret ? "interpreter" : "compiled");
    }
    EXPECT_GT(machine.driver.count("cuLaunchKernel"), 4U) << "chunks";
  }
}

/// What calls of the driver the compiled kernels of one more evaluation are.
struct GraphCalls {
  explicit GraphCalls(const FakeMachine& machine)
      : made(machine.driver.count("cuGraphInstantiateWithFlags")),
        launched(machine.driver.count("cuGraphLaunch")),
        kernels(machine.driver.count("cuLaunchKernel")) {}
  std::size_t made, launched, kernels;
};

TEST_P(Predictions, EachChunkOfCompiledKernelsIsAGraph) {
  const Workload w = arithmeticWorkload(65, 130, 9500, Precision::kF32);
  const std::vector<double> expected = predict(cpuEngine(Precision::kF32), w, Tier::kInterpret);
  FakeMachine machine(options());
  // Room for two buffers of 2,048 rows.
  const Engine gpu = machine.engine({.math = Math::kStrict, .device_bytes = 130 * 2048 * 4 * 2});
  const auto [data, program] = prepared(gpu, w, {.tier = Tier::kCompile});
  ASSERT_TRUE(gpu.prepare(program, data, {}).ok());
  for (int evaluation = 0; evaluation < 3; ++evaluation) {
    machine.driver.forgetCalls();
    expectSameBits(predict(gpu, program, data, w.parameters), expected, w.rows(), "compiled");
    const GraphCalls calls(machine);
    EXPECT_EQ(calls.launched, 5U);
    EXPECT_EQ(calls.made, evaluation == 0 ? 5U : 0U);
    EXPECT_EQ(calls.kernels, 0U);
  }
}

TEST_P(Predictions, GraphsOfManyChunksAreBounded) {
  const Workload w = arithmeticWorkload(66, 130, 20'000, Precision::kF32);
  FakeMachine machine(options());
  const Engine gpu = machine.engine({.math = Math::kStrict, .device_bytes = 130 * 1024 * 4 * 2});
  const auto [data, program] = prepared(gpu, w, {.tier = Tier::kCompile});
  const std::vector<double> first = predict(gpu, program, data, w.parameters);
  expectSameBits(first, predict(cpuEngine(Precision::kF32), w, Tier::kInterpret), w.rows(), "compiled");
  machine.driver.forgetCalls();
  expectSameBits(predict(gpu, program, data, w.parameters), first, w.rows(), "again");
  const GraphCalls calls(machine);
  EXPECT_EQ(calls.launched, 16U);
  EXPECT_EQ(calls.made, 0U);
  EXPECT_GT(calls.kernels, 2U) << "of four more chunks";
}

// Rows come into either of two buffers, and the last ones are fewer.
TEST_P(Predictions, GraphsOfStreamedRowsAreUsedAgain) {
  const Workload w = arithmeticWorkload(67, 130, 3 * 4096 + 300, Precision::kF32);
  FakeMachine machine(options());
  const Engine gpu = machine.engine({.math = Math::kStrict, .device_bytes = 300'000});
  const auto [data, program] = prepared(gpu, w, {.tier = Tier::kCompile});
  const Losses expected = lossesOf(cpuEngine(Precision::kF32), w, Tier::kInterpret, {});
  for (int evaluation = 0; evaluation < 4; ++evaluation) {
    machine.driver.forgetCalls();
    expectSameLosses(gpu.loss(program, data, w.parameters).value(), expected, "streamed");
    const GraphCalls calls(machine);
    EXPECT_EQ(calls.launched, 4U);
    EXPECT_EQ(calls.kernels, 4U) << "totals";
    if (evaluation >= 2) {
      EXPECT_EQ(calls.made, 0U);
    }
  }
}

TEST_P(Predictions, AGraphThatCannotBeMadeFailsItsEvaluationAlone) {
  const Workload w = arithmeticWorkload(68, 130, 9500, Precision::kF32);
  const std::vector<double> expected = predict(cpuEngine(Precision::kF32), w, Tier::kInterpret);
  FakeMachine machine(options());
  const Engine gpu = machine.engine({.math = Math::kStrict, .device_bytes = 130 * 2048 * 4 * 2});
  const Dataset data = gpu.upload(w.view()).value();
  std::vector<float> out(expected.size());
  for (const char* const entry : {"cuGraphAddKernelNode", "cuGraphInstantiateWithFlags", "cuGraphLaunch"}) {
    const Program program = gpu.compile(w.expressions, {.tier = Tier::kCompile});
    ASSERT_TRUE(gpu.prepare(program, data, {}).ok());
    machine.driver.failAt(entry, 3, CUDA_ERROR_UNKNOWN);
    const auto failed = gpu.evaluate(program, data, w.parameters, std::span(out));
    ASSERT_FALSE(failed.ok()) << entry;
    EXPECT_EQ(failed.error().code, Errc::kMachine) << failed.error().message;
    expectSameBits(predict(gpu, program, data, w.parameters), expected, w.rows(), entry);
  }
}

TEST_P(ManyPredictions, ComeInPieces) {
  Workload w = arithmeticWorkload(62, 0, 1000, Precision::kF32);
  for (std::uint32_t e = 0; e < 13'000; ++e) {
    w.expressions.push_back(build({Token::variable(e % 5), Token::parameter(0), Token::operation(Op::kMul)}));
    w.parameters.push_back(0.25 * e);
  }
  FakeMachine machine(options());
  const Engine gpu = machine.engine({.math = Math::kStrict});
  machine.driver.forgetCalls();
  expectSameBits(predict(gpu, w, Tier::kInterpret), predict(cpuEngine(Precision::kF32), w, Tier::kInterpret), w.rows(),
                 "pieces");
  EXPECT_GE(machine.driver.count("cuMemcpyDtoHAsync") + machine.driver.count("cuMemcpy2DAsync"), 4U);
}

TEST_P(Predictions, GoStraightToPinnedMemory) {
  const Workload w = arithmeticWorkload(63, 40, 9500, Precision::kF32);
  const std::vector<double> expected = predict(cpuEngine(Precision::kF32), w, Tier::kInterpret);
  FakeMachine machine(options());
  const Engine gpu = machine.engine({.math = Math::kStrict, .device_bytes = std::uint64_t{1} << 20});
  const auto [data, program] = prepared(gpu, w, {.tier = Tier::kInterpret});
  ASSERT_TRUE(gpu.prepare(program, data, std::nullopt).ok());
  const std::shared_ptr<const Cuda> cuda = Cuda::open(machine.driver.load().value(), 0).value();
  const CurrentContext current(*cuda);
  const PinnedBuffer pinned(cuda, (expected.size() + 1) * sizeof(float));
  for (const std::size_t offset : {0, 1}) {
    const std::span<float> out = pinned.as<float>().subspan(offset, expected.size());
    machine.driver.forgetCalls();
    ASSERT_TRUE(gpu.evaluate(program, data, w.parameters, out).ok());
    EXPECT_EQ(machine.driver.count("cuMemHostAlloc"), 0U) << "no memory of our own between";
    expectSameBits(std::vector<double>(out.begin(), out.end()), expected, w.rows(), "pinned");
  }
  EXPECT_FALSE(cuda->isPinned(pinned.as<float>().data() + 1, pinned.bytes())) << "its end is not";
}

// Kernels take a millisecond each on the model's clock, and copies a hundred.
TEST(PredictionsTime, IsThatOfTheKernelsAlone) {
  const Workload w = arithmeticWorkload(65, 40, 9500, Precision::kF32);
  // With the least, data are streamed, too.
  for (const std::uint64_t bytes : {std::uint64_t{1} << 30, std::uint64_t{1} << 20, std::uint64_t{1}}) {
    for (const bool lag : {false, true}) {
      FakeMachine machine({.lag = lag});
      const Engine gpu = machine.engine({.math = Math::kStrict, .device_bytes = bytes});
      const auto [data, program] = prepared(gpu, w, {.tier = Tier::kInterpret});
      const auto check = [&](const char* what) {
        const auto kernels = static_cast<double>(machine.driver.count("cuLaunchKernel"));
        EXPECT_GT(kernels, 0);
        EXPECT_NEAR(program.status().device_seconds, kernels * 1e-3, 1e-9) << what << ", " << bytes << " bytes";
        machine.driver.forgetCalls();
      };
      machine.driver.forgetCalls();
      for (int time = 0; time < 2; ++time) {
        predict(gpu, program, data, w.parameters);
        check("predictions");
      }
      ASSERT_TRUE(gpu.loss(program, data, w.parameters).ok());
      check("losses");
    }
  }
}

// The kernels of the second chunk are there before anybody waits for the first; those of the third come when the first
// was copied, so that nothing but its own copies waits for them.
TEST(PredictionsInOrder, KernelsAreTwoChunksAhead) {
  FakeMachine machine;
  const Engine gpu = machine.engine({.math = Math::kStrict, .device_bytes = std::uint64_t{1} << 20});
  const Workload w = arithmeticWorkload(64, 40, 9500, Precision::kF32);
  const auto [data, program] = prepared(gpu, w, {.tier = Tier::kInterpret});
  ASSERT_TRUE(gpu.prepare(program, data, std::nullopt).ok());
  machine.driver.forgetCalls();
  predict(gpu, program, data, w.parameters);
  std::string order;
  std::uint64_t kernels = 0, copies = 0;
  for (const FakeCall& call : machine.driver.calls()) {
    if (call.entry == "cuLaunchKernel") order += 'k', kernels = call.stream;
    if (call.entry == "cuMemcpyDtoHAsync" || call.entry == "cuMemcpy2DAsync") order += 'c', copies = call.stream;
  }
  EXPECT_EQ(order, "kkcckckckc");
  EXPECT_NE(kernels, copies);
}

}  // namespace
}  // namespace srjit
