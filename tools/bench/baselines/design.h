// Published evaluators of symbolic regression, implemented from their descriptions and measured in the same run for
// comparison.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "ir/expression.h"

namespace srjit {

/// The data of a baseline. Columns and target have equal lengths.
struct BaselineData {
  unsigned ordinal = 0;  ///< device ordinal of the GPU; ignored by baselines of the processor
  std::vector<std::vector<float>> columns;
  std::vector<float> target;
};

/// A published design. Computes f32 fast (approximate) results. Not thread-safe. Throws CudaFailure, BenchFailure.
class Baseline {
 public:
  virtual ~Baseline() = default;
  /// Prepares new expressions, frontend and compilation included. Precondition: they use only the operators of the
  /// scenarios.
  virtual void prepare(std::span<const Expression> expressions) = 0;
  /// One step: new parameters (concatenated over expressions, as Program::parameterOffset() defines) to sums of squared
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
  /// Throws CudaFailure or BenchFailure if this machine cannot run it.
  std::unique_ptr<Baseline> (*make)(const BaselineData& data);
  std::size_t unit = 1;   ///< expressions per compilation, the granularity of its cost
  bool compiles = false;  ///< whether it compiles code of the expressions
};

/// Index of each expression's first parameter in the concatenated parameters, and their total number.
std::vector<std::uint32_t> parameterOffsets(std::span<const Expression> expressions);

/// All baselines, in the order of measurement.
std::span<const BaselineInfo> allBaselines();

}  // namespace srjit
