// A population of the host that is evaluated once, as it is written: lanes of the GPU encode it
// (compiler/interpreter/lanes/arguments.h), so that the host only copies it. Phases:
//
//   survey   expressions in parallel: validity, operators, columns, parameters
//   start    copies codes and numbers, with the values of parameters, to the device; DeviceLoss::Work; copies results
//   finish   waits for the results
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "ir/population.h"
#include "runtime/code/kernel_store.h"
#include "runtime/dataset.h"
#include "runtime/evaluation/executor.h"
#include "runtime/evaluation/survey.h"
#include "runtime/launch/device_loss.h"

namespace srjit {

/// The losses of a population on a stream. Needs no current context.
class LaneFlight final : public Flight {
 public:
  /// Populations of fewer expressions are encoded on the host sooner.
  static constexpr std::size_t kLeastExpressions = 1024;
  /// With more rows, evaluation counts more than encoding, and programs of lanes take longer to evaluate: every block
  /// has room for kLaneSlots values, even if no program uses a slot (docs/history/experiments.md, Lanes).
  static constexpr std::size_t kMostRows = std::size_t{1} << 14;

  /// Of the device's memory and of pinned memory, for the population and its results.
  static std::size_t bytes(const PopulationView& population, Precision precision);
  /// Takes that memory for the population, and at most `bytes` more. Reads the population and the parameters
  /// before it returns. The store's context is current; works in parallel on the thread's arena. Throws CudaFailure,
  /// std::bad_alloc. Errors: those of DeviceLoss::Work::create().
  static Result<std::unique_ptr<LaneFlight>> start(std::shared_ptr<KernelStore> store, const Dataset& data,
                                                   const PopulationView& population, const PopulationSurvey& survey,
                                                   std::span<const double> parameters, const LossOptions& loss,
                                                   std::size_t bytes);
  ~LaneFlight() override;

  bool ready() override { return done_.ready(); }
  void wait() override;
  /// Losses of the expressions that the survey leaves to the host are unspecified.
  Result<Losses> finish() override;

 private:
  /// Where arrays begin in the memory of the device and in those of the host: first what is copied there, then what is
  /// copied back.
  struct Layout {
    std::size_t codes, values, offsets, sent, losses, valid_rows, faults, all;
  };
  static Layout layOut(std::size_t expressions, std::size_t tokens, Precision precision);
  LaneFlight(std::shared_ptr<KernelStore> store, std::size_t expressions, std::size_t tokens);
  void stage(const PopulationView& population, const PopulationSurvey& survey, std::span<const double> parameters);
  void submit(const PopulationView& population);

  std::shared_ptr<KernelStore> store_;
  DeviceQueue& queue_;
  std::size_t count_, tokens_;
  Layout at_;
  std::shared_ptr<PinnedBuffer> staging_;
  DeviceBuffer memory_;
  std::shared_ptr<DeviceLoss::Work> work_;
  std::vector<std::uint32_t> left_;
  Losses losses_;
  Event done_;
  bool in_flight_ = false;
};

}  // namespace srjit
