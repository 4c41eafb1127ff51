// Populations whose programs are made on the GPU: the bits of those that the host makes.
#include <chrono>
#include <optional>
#include <thread>

#include "compiler/interpreter/kernel.h"
#include "ir/ops.h"
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

class GpuEncoding : public GpuInMode {
 protected:
  void SetUp() override {
    GpuInMode::SetUp();
    if (IsSkipped()) return;
    if (engine().options().device == "cpu") GTEST_SKIP() << "the processor encodes for itself";
    if (frontEndBitcode().empty()) GTEST_SKIP() << "no clang 19 where this was built";
  }

  /// Expects the losses that programs of the host have. Gives how many expressions the GPU has encoded.
  std::size_t expectTheBitsOfTheHosts(const GeneratorOptions& options) const {
    const Engine engine = this->engine();
    const Workload w = Workload::random(options, 40'000, 257, Spread::kSpecial, mode().precision);
    const Dataset data = engine.upload(w.view()).value();
    const std::optional<Program> on_gpu = encodedOnGpu(engine, w.expressions);
    if (!on_gpu) {
      ADD_FAILURE() << "the GPU has encoded nothing";
      return 0;
    }
    const Losses losses = lossesOf(engine, *on_gpu, data, w.parameters, {});

    // Populations that are too small for the GPU.
    constexpr std::size_t kOfHost = 10'000;
    Losses of_host;
    std::size_t nodes = 0, parameter = 0;
    for (std::size_t first = 0; first < w.expressions.size(); first += kOfHost) {
      const std::span<const Expression> expressions = std::span(w.expressions).subspan(first, kOfHost);
      const Program program = engine.compile(expressions, {.tier = Tier::kInterpret});
      EXPECT_EQ(program.info().encoded_on_device, 0U);
      const std::size_t parameters = program.parameterOffset(program.size());
      const Losses some = lossesOf(engine, program, data, std::span(w.parameters).subspan(parameter, parameters), {});
      of_host.values.insert(of_host.values.end(), some.values.begin(), some.values.end());
      of_host.valid_rows.insert(of_host.valid_rows.end(), some.valid_rows.begin(), some.valid_rows.end());
      nodes += program.info().nodes_after;
      parameter += parameters;
    }
    EXPECT_EQ(on_gpu->info().nodes_after, nodes);
    expectSameLosses(losses, of_host, "GPU and host");
    return on_gpu->info().encoded_on_device;
  }
};

TEST_P(GpuEncoding, HasTheBitsOfTheHosts) {
  GeneratorOptions options = *findPopulation("small", 23);
  options.ops = {};
  options.special_probability = 0.1;
  EXPECT_GT(expectTheBitsOfTheHosts(options), 4'000U);
}

// In Math::kFast these need more memory than a worker has. It then ends, and what it had still to encode is the host's.
TEST_P(GpuEncoding, WhatHasNoMemoryIsTheHosts) {
  GeneratorOptions options = *findPopulation("small", 29);
  options.ops = {Op::kSqrt, Op::kSqrt, Op::kSqrt, Op::kPow};
  options.min_nodes = 8;
  options.max_nodes = 20;
  EXPECT_GT(expectTheBitsOfTheHosts(options), 0U);
}

INSTANTIATE_TEST_SUITE_P(Modes, GpuEncoding,
                         testing::Values(Mode{Precision::kF32, Math::kStrict}, Mode{Precision::kF32, Math::kPrecise},
                                         Mode{Precision::kF32, Math::kFast}, Mode{Precision::kF64, Math::kFast}),
                         modeName);

}  // namespace
}  // namespace srjit
