// Published designs on a scenario's work: checked first, then timed.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "tools/bench/designs/check.h"
#include "tools/bench/work.h"

namespace srjit {

/// The work of a design. References must outlive the runs.
struct DesignWork {
  Subject subject;
  const BenchData& data;
  std::span<const Expression> expressions;
  int steps = 1;                ///< evaluations, each with new parameters
  double frontend_seconds = 0;  ///< time from text to expressions, common to all designs
  /// If set, a sample is one preparation and one step for losses of expressions that it returns, new ones of the same
  /// kind and number each time; else one preparation counts, and `steps`. Designs that compile are then left out.
  std::function<std::vector<Expression>()> renewed = {};
};

/// Times one design. Throws what the design throws. Not thread-safe.
class DesignTimer {
 public:
  /// Constructs the design; fails on a machine that cannot run it. `data` must outlive this.
  DesignTimer(const Bench& bench, const BaselineInfo& info, const BenchData& data);

  /// Prepares it for these expressions, which must outlive the steps; returns seconds. The next step has number 0.
  double prepare(std::span<const Expression> expressions);
  /// One step with the parameters parameterNumbers(count, step number % 4). Kernel time is by the device's clock.
  Seconds step(bool predictions);
  /// Checks predictions and sums of a sample of expressions (checkBaseline()); to be prepared again afterwards.
  std::string check(std::span<const Expression> expressions);
  /// Compares the sums of the last step of losses with sr-jit's, on the processor in `precise`: designs compute
  /// expressions as written, while rules of `fast` give numbers where designs give NaN (docs/accuracy.md).
  SumAgreement compareSums() const;

 private:
  const BenchData& data_;
  const std::unique_ptr<Baseline> design_;
  std::span<const Expression> expressions_;
  std::vector<std::vector<double>> numbers_;
  std::size_t next_ = 0, last_ = 0;
  std::vector<double> sums_;
  std::vector<float> predictions_;
};

/// Runs every design for the selected results, in about `seconds` altogether, and adds their figures. Each is checked
/// before it is timed, and the sums of the timed run are checked again. An error after construction is a fault; a
/// design that cannot be constructed on this machine, or has no time left, is reported as not run. If there is too
/// little time for all expressions, measures two evenly spread samples of different size and extrapolates linearly;
/// omitted steps count with the median of the others. Gives the designs that measured all in less than a second. Throws
/// nothing.
std::vector<BaselineInfo> runDesigns(const Bench& bench, const DesignWork& work, double seconds);

}  // namespace srjit
