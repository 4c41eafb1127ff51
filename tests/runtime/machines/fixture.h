// The machines that one suite of tests covers: the processor, models of GPUs, data that GPUs stream, and the same
// through submissions and through srjit.h. Each must give the bits of the processor's interpreter.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/gpu/data.h"
#include "runtime/pool/program.h"
#include "tests/generators/token_arrays.h"
#include "tests/generators/workload.h"
#include "tests/gpu_model/direct_machine.h"
#include "tests/runtime/machines/through_c.h"
#include "tests/runtime/pool/pooled_machine.h"

namespace srjit {

struct MachineKind {
  const char* name;
  std::size_t gpus = 0;            ///< 0: the processor
  std::uint64_t device_bytes = 0;  ///< so few that data are streamed; 0: they are resident
  bool is_submitted = false;       ///< evaluations are submitted, and then taken
  bool is_c = false;               ///< they go through srjit.h
};

inline constexpr std::uint64_t kFewBytes = 300'000;
inline constexpr MachineKind kProcessor{.name = "Cpu"}, kOneGpu{.name = "Gpu", .gpus = 1},
    kTwoGpus{.name = "Gpus2", .gpus = 2}, kThreeGpus{.name = "Gpus3", .gpus = 3},
    kEightGpus{.name = "Gpus8", .gpus = 8}, kStreamingGpu{.name = "StreamingGpu", .gpus = 1, .device_bytes = kFewBytes},
    kStreamingGpus{.name = "StreamingGpus3", .gpus = 3, .device_bytes = kFewBytes};
inline constexpr MachineKind kSubmitted{.name = "CpuSubmitted", .is_submitted = true},
    kSubmittedToGpu{.name = "GpuSubmitted", .gpus = 1, .is_submitted = true},
    kSubmittedToGpus{.name = "Gpus3Submitted", .gpus = 3, .is_submitted = true}, kC{.name = "C", .is_c = true},
    kSubmittedThroughC{.name = "CSubmitted", .is_submitted = true, .is_c = true};

/// A machine of a kind, and evaluations there. Arithmetic is strict.
class Machine {
 public:
  explicit Machine(const MachineKind& machine, Precision of) : kind(machine), precision(of) {
    if (kind.gpus > 0) model = std::make_unique<DirectMachine>(manyDevices(kind.gpus), "proved", precision);
  }

  /// `options` with the machine's device, memory and precision. The self-test of direct code has passed on one GPU.
  Engine engine(EngineOptions options = {}) const {
    options.precision = precision;
    options.math = Math::kStrict;
    if (!model) {
      options.device = "cpu";
      options.threads = 2;
      return Engine::create(options).value();
    }
    options.device = firstDevices(kind.gpus);
    if (isStreaming()) options.device_bytes = kind.device_bytes;
    if (kind.gpus == 1) options.cache_directory = model->directory.path("");
    return model->engine(options);
  }
  bool isStreaming() const { return kind.device_bytes > 0; }
  /// Whether rows of `data` go to the machine's first GPU at each evaluation.
  bool isStreamed(const Dataset& data) const {
    if (kind.gpus == 0) return false;
    const Dataset::State& state = kind.gpus == 1 ? data.state() : *replicasOf(data.state()).front();
    return deviceDataOf(state).isStreamed();
  }
  /// Numbers of rows: about groups, warps and chunks. kFewBytes makes streams of four columns or more of as many rows
  /// as a stream has, in either precision.
  std::vector<std::size_t> rows() const {
    if (isStreaming()) return {4 * 4096 + 1777};
    return kind.gpus > 1 ? std::vector<std::size_t>{1, 300} : std::vector<std::size_t>{1, 3, 127, 128, 129, 362, 1300};
  }
  /// Several GPUs divide the work of a tier, which ManyDevicesTiersSlow tests.
  std::vector<Tier> tiers() const {
    if (kind.gpus > 1) return {Tier::kInterpret};
    if (kind.gpus == 0) return {Tier::kInterpret, Tier::kCompile};
    return {Tier::kInterpret, Tier::kDirect, Tier::kCompile};
  }

  Losses loss(const Engine& engine, const Program& program, const Dataset& data, std::span<const double> parameters,
              const LossOptions& options = {}) const {
    if (kind.is_c) return throughC(engine, program, data).loss(parameters, options);
    if (kind.is_submitted) return engine.submitLoss(program, data, parameters, options).value().result().value();
    return engine.loss(program, data, parameters, options).value();
  }
  Gradients gradient(const Engine& engine, const Program& program, const Dataset& data,
                     std::span<const double> parameters, const GradientOptions& options = {}) const {
    if (kind.is_c) return throughC(engine, program, data).gradient(parameters, options);
    if (kind.is_submitted) return engine.submitGradient(program, data, parameters, options).value().result().value();
    return engine.gradient(program, data, parameters, options).value();
  }
  Fits fit(const Engine& engine, const Program& program, const Dataset& data, std::span<const double> starts,
           const FitOptions& options = {}) const {
    if (kind.is_c) return throughC(engine, program, data).fit(starts, options);
    if (kind.is_submitted) return engine.submitFit(program, data, starts, options).value().result().value();
    return engine.fit(program, data, starts, options).value();
  }
  /// As doubles, which keeps every bit of a float. `parameters` may be several vectors.
  std::vector<double> predictions(const Engine& engine, const Program& program, const Dataset& data,
                                  std::span<const double> parameters, std::vector<Failure>* failures = nullptr) const {
    const std::size_t own = program.parameterOffset(program.size());
    const std::size_t vectors = own == 0 ? 1 : parameters.size() / own;
    return numbersOf(vectors * program.size() * data.rows(), failures, [&](auto out) {
      if (kind.is_c) return throughC(engine, program, data).predict(parameters, out);
      if (kind.is_submitted) return engine.submitEvaluate(program, data, parameters, out).value().result().value();
      return engine.evaluate(program, data, parameters, out).value();
    });
  }
  std::vector<double> jacobian(const Engine& engine, const Program& program, const Dataset& data,
                               std::span<const double> parameters, DerivativesBy by) const {
    const std::size_t count = by == DerivativesBy::kVariables ? data.columns() * program.size() : parameters.size();
    std::vector<Failure> failures;
    return numbersOf(count * data.rows(), &failures, [&](auto out) {
      if (kind.is_c) return throughC(engine, program, data).jacobian(parameters, out, by);
      if (kind.is_submitted) return engine.submitJacobian(program, data, parameters, out, by).value().result().value();
      return engine.jacobian(program, data, parameters, out, by).value();
    });
  }

  const MachineKind kind;
  const Precision precision;
  std::unique_ptr<DirectMachine> model;  ///< null for the processor

 private:
  c_api::Evaluator throughC(const Engine& engine, const Program& program, const Dataset& data) const {
    return {engine, program, data, kind.is_submitted};
  }
  template <class Write>
  std::vector<double> numbersOf(std::size_t count, std::vector<Failure>* failures, const Write& write) const {
    return withZeroOf(precision, [&]<class T>(T) {
      std::vector<T> out(count, T(12345));
      const std::vector<Failure> failed = write(std::span<T>(out));
      if (failures != nullptr) *failures = failed;
      EXPECT_TRUE(failures != nullptr || failed.empty());
      return std::vector<double>(out.begin(), out.end());
    });
  }
};

using MachineParam = std::tuple<MachineKind, Precision>;

inline std::string nameOfMachine(const testing::TestParamInfo<MachineParam>& tested) {
  return std::string(std::get<0>(tested.param).name) + "_" + std::string(nameOf(std::get<1>(tested.param)));
}

template <class... Kinds>
auto inSingle(const Kinds&... kinds) {
  return testing::Values(MachineParam(kinds, Precision::kF32)...);
}
template <class... Kinds>
auto inDouble(const Kinds&... kinds) {
  return testing::Values(MachineParam(kinds, Precision::kF64)...);
}

/// Tests of each machine in each precision.
class Machines : public testing::TestWithParam<MachineParam> {
 protected:
  Workload workload(std::uint64_t seed, std::size_t count, std::size_t rows, bool weighted = true) const {
    return arithmeticWorkload(seed, machine_.isStreaming() ? std::min<std::size_t>(count, 6) : count, rows,
                              machine_.precision, weighted);
  }
  /// A program of the machine's tiers each.
  std::vector<std::pair<Tier, Program>> programsOf(const Engine& engine,
                                                   const std::vector<Expression>& expressions) const {
    std::vector<std::pair<Tier, Program>> programs;
    for (const Tier tier : machine_.tiers()) programs.emplace_back(tier, engine.compile(expressions, {.tier = tier}));
    return programs;
  }
  /// Expects that a program was evaluated by code of this tier.
  static void expectServed(const Program& program, Tier tier) {
    const ServedExpressions served = program.status().served;
    EXPECT_TRUE(tier != Tier::kDirect || served.direct > 0);
    EXPECT_TRUE(tier != Tier::kCompile || served.compiled > 0);
  }
  /// Rows enough for streams, or `rows`.
  std::size_t rowsOr(std::size_t rows) const { return machine_.isStreaming() ? machine_.rows()[0] : rows; }

  const Machine machine_{std::get<0>(GetParam()), std::get<1>(GetParam())};
  const Machine processor_{kProcessor, std::get<1>(GetParam())};
  const Engine cpu_ = cpuEngine(std::get<1>(GetParam()));
};

}  // namespace srjit
