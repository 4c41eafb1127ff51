// Published designs of evaluators of symbolic regression, written for this project from their descriptions, to compare
// with in the same run.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "ir/expression.h"

namespace srjit {

/// What a baseline evaluates on. Columns and target have equal lengths.
struct BaselineData {
  unsigned ordinal = 0;  ///< of the GPU; a baseline of the processor does not look at it
  std::vector<std::vector<float>> columns;
  std::vector<float> target;
};

/// A published design, to compare with. Computes f32 fast (approximate) results. Not thread-safe. Throws CudaFailure,
/// BenchFailure.
class Baseline {
 public:
  virtual ~Baseline() = default;
  /// Makes ready for new expressions (frontend and compile time is inside); all use the operators of the scenarios.
  virtual void prepare(std::span<const Expression> expressions) = 0;
  /// One step: new parameters (concatenated over expressions, as Program::parameterOffset has them) to sums of squared
  /// errors on the host.
  virtual void losses(std::span<const double> parameters, std::span<double> sums) = 0;
  /// One step with the matrix read back: expression e's row r at out[e * rows + r].
  virtual void predictions(std::span<const double> parameters, std::span<float> out) = 0;
  /// Device seconds of the kernels of the last step.
  virtual double kernelSeconds() const = 0;
};

struct BaselineInfo {
  const char* name;
  const char* doc;
  /// Throws what says that this machine cannot run it.
  std::unique_ptr<Baseline> (*make)(const BaselineData& data);
  std::size_t unit = 1;  ///< expressions that it compiles at once, so that its costs grow by so many
};

/// All, in the order in which they are to be measured.
std::span<const BaselineInfo> allBaselines();

}  // namespace srjit
