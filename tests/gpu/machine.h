// Common code of the GPU tests: engines, kept from one case to the next, and comparisons.
//
// The environment variable SRJIT_GPU_TEST_DEVICE names another device than cuda:0; with "cpu" the cases that need no
// device memory run on the processor, which tests the cases themselves. Kernels are cached in the directory
// SRJIT_GPU_TEST_CACHE, or for this run only; never in the user's cache, since its content decides tiers.
#pragma once

#include <functional>
#include <string>

#include "tests/generators/workload.h"

namespace srjit {

struct Mode {
  Precision precision;
  Math math;
};

/// Losses of all rows.
inline constexpr LossOptions kPlain{LossKind::kMse, NanPolicy::kPropagate};

std::string modeName(const testing::TestParamInfo<Mode>& info);
std::vector<Mode> allModes();
/// Those in which the processor has the bits of a GPU, also of random expressions of all operators.
std::vector<Mode> modesOfTheProcessor();

/// How much device memory an engine may use.
enum class Memory {
  kPlenty,
  kTight,     ///< data are resident, evaluations are divided into chunks of rows
  kStreamed,  ///< data are streamed, in the smallest chunks
};

/// The number of the device under test, cuda:N; 0 of others.
int deviceOrdinal();

/// Why no GPU can be tested; empty if one can.
const std::string& gpuFault();

/// One engine per mode and memory, until the end of all tests. Thread-safe.
Engine engineOf(Mode mode, Memory memory = Memory::kPlenty);

/// Base of all suites: skips without a GPU.
class Gpu : public testing::Test {
 protected:
  void SetUp() override {
    if (!gpuFault().empty()) GTEST_SKIP() << gpuFault();
  }
};

class GpuInMode : public Gpu, public testing::WithParamInterface<Mode> {
 protected:
  Mode mode() const { return GetParam(); }
  Engine engine(Memory memory = Memory::kPlenty) const { return engineOf(GetParam(), memory); }
};

/// Runs `body` for 0 .. count - 1 on all cores, one thread each, so that waits for the assembler overlap.
void onAllCores(std::size_t count, const std::function<void(std::size_t)>& body);

/// Quarters, some of them 0: sums of them are exact in any order.
std::vector<double> quarterWeights(std::size_t rows);

/// Operators whose results IEEE 754 defines exactly.
std::vector<Op> exactOps();

/// Expressions of these operators (empty: all), with parameters and special values, over data of 5 columns.
GeneratorOptions generatorOf(std::uint64_t seed, int max_nodes, std::vector<Op> ops = {});

/// A way to evaluate.
struct Evaluator {
  Engine engine;
  Tier tier;
};

/// What a program gives, and the program.
struct Results {
  Program program;
  std::vector<double> predictions;
  std::vector<Losses> losses;
};
/// Of the workload's expressions on `data`, or on its own rows; the losses by these options.
Results resultsOf(const Evaluator& by, const Workload& w, const Dataset& data,
                  const std::vector<LossOptions>& losses = {kPlain});
Results resultsOf(const Evaluator& by, const Workload& w, const std::vector<LossOptions>& losses = {kPlain});
/// Expects equal bits.
void expectSame(const Results& a, const Results& b, const Workload& w, const std::string& what);

/// Losses of a program that must not fail.
Losses lossesOf(const Engine& engine, const Program& program, const Dataset& data, std::span<const double> parameters,
                const LossOptions& options);

}  // namespace srjit
