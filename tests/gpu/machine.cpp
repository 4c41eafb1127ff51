#include "tests/gpu/machine.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <tuple>

#include "ir/ops.h"
#include "runtime/cuda/context.h"
#include "tests/generators/scratch.h"

namespace srjit {
namespace {

std::string deviceName() {
  const char* const device = std::getenv("SRJIT_GPU_TEST_DEVICE");
  return device != nullptr && *device != '\0' ? device : "cuda:0";
}

/// Owns the engines, and the directory of their kernels if it is for this run only.
class Machine : public testing::Environment {
 public:
  static Machine& instance() {
    // GoogleTest owns it.
    static Machine* const kMachine = new Machine;
    return *kMachine;
  }

  Engine engine(Mode mode, Memory memory) {
    const std::lock_guard lock(mutex_);
    const auto key = std::tuple(mode.precision, mode.math, memory);
    if (const auto found = engines_.find(key); found != engines_.end()) return found->second;
    EngineOptions options{.device = deviceName(), .precision = mode.precision, .math = mode.math};
    if (memory == Memory::kStreamed) options.device_bytes = 1;
    if (memory == Memory::kTight) options.device_bytes = std::uint64_t{8} << 20;
    options.cache_directory = cacheDirectory();
    return engines_.emplace(key, Engine::create(options).value()).first->second;
  }

  void TearDown() override {
    engines_.clear();
    own_directory_.reset();
  }

 private:
  std::string cacheDirectory() {
    const char* const given = std::getenv("SRJIT_GPU_TEST_CACHE");
    if (given != nullptr && *given != '\0') return given;
    if (!own_directory_) own_directory_.emplace();
    return own_directory_->path("");
  }

  std::mutex mutex_;
  std::map<std::tuple<Precision, Math, Memory>, Engine> engines_;
  std::optional<Scratch> own_directory_;
};

const testing::Environment* const kRegistered = testing::AddGlobalTestEnvironment(&Machine::instance());

}  // namespace

std::string modeName(const testing::TestParamInfo<Mode>& info) {
  return std::string(nameOf(info.param.precision)) + "_" + nameOf(info.param.math);
}

std::vector<Mode> allModes() {
  std::vector<Mode> modes;
  for (const Precision precision : {Precision::kF32, Precision::kF64}) {
    for (const Math math : {Math::kStrict, Math::kPrecise, Math::kFast}) modes.push_back({precision, math});
  }
  return modes;
}

std::vector<Mode> modesOfTheProcessor() {
  return {{Precision::kF32, Math::kStrict}, {Precision::kF32, Math::kPrecise}, {Precision::kF64, Math::kPrecise}};
}

int deviceOrdinal() {
  constexpr std::string_view kPrefix = "cuda:";
  const std::string name = deviceName();
  return name.starts_with(kPrefix) ? std::atoi(name.c_str() + kPrefix.size()) : 0;
}

const std::string& gpuFault() {
  static const std::string kFault = [] {
    const auto engine = Engine::create({.device = deviceName(), .cache_directory = ""});
    return engine ? std::string() : "no GPU to test: " + engine.error().message;
  }();
  return kFault;
}

Engine engineOf(Mode mode, Memory memory) { return Machine::instance().engine(mode, memory); }

void onAllCores(std::size_t count, const std::function<void(std::size_t)>& body) {
  std::atomic<std::size_t> next = 0;
  std::vector<std::thread> threads;
  // With one processor (`taskset`) cases run one after the other.
  const std::size_t cores = std::max(1U, std::thread::hardware_concurrency());
  for (std::size_t t = 0; t < std::min(count, cores); ++t) {
    threads.emplace_back([&] {
      for (std::size_t i = next++; i < count; i = next++) body(i);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

std::vector<double> quarterWeights(std::size_t rows) {
  std::vector<double> weights(rows);
  for (std::size_t r = 0; r < rows; ++r) weights[r] = 0.25 * static_cast<double>((r + 1) % 7);
  return weights;
}

std::vector<Op> exactOps() {
  return {Op::kAdd, Op::kSub, Op::kMul, Op::kDiv, Op::kNeg, Op::kAbs, Op::kInv, Op::kSquare, Op::kSqrt, Op::kFma};
}

GeneratorOptions generatorOf(std::uint64_t seed, int max_nodes, std::vector<Op> ops) {
  return {.seed = seed,
          .min_nodes = 1,
          .max_nodes = max_nodes,
          .variables = 5,
          .parameters = 3,
          .ops = std::move(ops),
          .parameter_probability = 0.2,
          .special_probability = 0.1};
}

Losses lossesOf(const Engine& engine, const Program& program, const Dataset& data, std::span<const double> parameters,
                const LossOptions& options) {
  Result<Losses> losses = engine.loss(program, data, parameters, options);
  if (!losses) {
    ADD_FAILURE() << losses.error().message;
    return {};
  }
  if (!losses->failures.empty()) ADD_FAILURE() << losses->failures.front().error.message;
  return std::move(*losses);
}

Results resultsOf(const Evaluator& by, const Workload& w, const Dataset& data, const std::vector<LossOptions>& losses) {
  const Program program = by.engine.compile(w.expressions, {.tier = by.tier});
  Results results{program, predict(by.engine, program, data, w.parameters), {}};
  for (const LossOptions& loss : losses) {
    results.losses.push_back(lossesOf(by.engine, program, data, w.parameters, loss));
  }
  return results;
}

Results resultsOf(const Evaluator& by, const Workload& w, const std::vector<LossOptions>& losses) {
  return resultsOf(by, w, by.engine.upload(w.view()).value(), losses);
}

void expectSame(const Results& a, const Results& b, const Workload& w, const std::string& what) {
  expectSameBits(a.predictions, b.predictions, w.rows(), what);
  ASSERT_EQ(a.losses.size(), b.losses.size()) << what;
  for (std::size_t i = 0; i < a.losses.size(); ++i) {
    ASSERT_FALSE(a.losses[i].values.empty()) << what;
    expectSameLosses(a.losses[i], b.losses[i], what + ", loss " + std::to_string(i));
  }
}

}  // namespace srjit
