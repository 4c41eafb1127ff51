// Populations whose programs are made on the GPU: the bits of those that the host makes.
#include <chrono>
#include <optional>
#include <thread>

#include "compiler/interpreter/front_end/front_end_ptx.h"
#include "tests/generators/population.h"
#include "tests/gpu/machine.h"

namespace srjit {
namespace {

/// A program that the GPU has encoded: its kernels are made in the background, which takes the assembler seconds.
/// Nothing if there are none after minutes.
std::optional<Program> encodedOnGpu(const Engine& engine, std::span<const Expression> expressions) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(3);
  while (std::chrono::steady_clock::now() < end) {
    Program program = engine.compile(expressions, {.tier = Tier::kInterpret});
    if (program.info().encoded_on_device > 0) return program;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  return std::nullopt;
}

class GpuEncoding : public GpuInMode {};

TEST_P(GpuEncoding, HasTheBitsOfTheHosts) {
  if (this->engine().options().device == "cpu") GTEST_SKIP() << "the processor encodes for itself";
  if (frontEndBitcode().empty()) GTEST_SKIP() << "no clang 19 where this was built";
  // Of this test alone: its first population is the host's.
  const Engine engine = Engine::create(this->engine().options()).value();
  GeneratorOptions options = *findPopulation("small", 23);
  options.ops = {};
  options.special_probability = 0.1;
  const Workload w = Workload::random(options, 40'000, 257, Spread::kSpecial, mode().precision);
  const Dataset data = engine.upload(w.view()).value();
  const Program on_host = engine.compile(w.expressions, {.tier = Tier::kInterpret});
  ASSERT_EQ(on_host.info().encoded_on_device, 0u) << "nothing waits for the kernels";
  const std::optional<Program> on_gpu = encodedOnGpu(engine, w.expressions);
  ASSERT_TRUE(on_gpu);
  EXPECT_EQ(on_gpu->info().nodes_after, on_host.info().nodes_after);
  expectSameLosses(lossesOf(engine, *on_gpu, data, w.parameters, {}), lossesOf(engine, on_host, data, w.parameters, {}),
                   "GPU and host");
}

INSTANTIATE_TEST_SUITE_P(Modes, GpuEncoding,
                         testing::Values(Mode{Precision::kF32, Math::kStrict}, Mode{Precision::kF32, Math::kPrecise},
                                         Mode{Precision::kF32, Math::kFast}, Mode{Precision::kF64, Math::kFast}),
                         modeName);

}  // namespace
}  // namespace srjit
