// Times a published design: construction, preparation, and single steps.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "tools/bench/baselines/design.h"
#include "tools/bench/gpu_context.h"

namespace srjit {

/// Throws what the baseline throws. Not thread-safe.
class BaselineTimer {
 public:
  /// Constructs the design; fails on a machine that cannot run it. Copies the data.
  BaselineTimer(const BenchContext& context, const BaselineInfo& info, const BenchData& data);

  /// Prepares it for these expressions, which must outlive the steps; returns seconds. The next step has number 0.
  double prepare(std::span<const Expression> expressions);
  /// One step with the parameters parameterNumbers(count, step number % 4); returns seconds.
  double step(bool predictions);

  Baseline& baseline() noexcept { return *baseline_; }
  const BaselineData& data() const noexcept { return data_; }
  std::span<const Expression> expressions() const noexcept { return expressions_; }
  /// Kernel time of the last step, by the device's clock.
  double kernelSeconds() const { return baseline_->kernelSeconds(); }
  /// Sums of the last step of losses, and its parameters.
  std::span<const double> sums() const noexcept { return sums_; }
  std::span<const double> parameters() const noexcept { return numbers_[last_]; }

 private:
  const BaselineData data_;
  const std::unique_ptr<Baseline> baseline_;
  std::span<const Expression> expressions_;
  std::vector<std::vector<double>> numbers_;
  std::size_t next_ = 0, last_ = 0;
  std::vector<double> sums_;
  std::vector<float> predictions_;
};

std::size_t parametersOf(std::span<const Expression> expressions);

}  // namespace srjit
