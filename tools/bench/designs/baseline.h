// Published evaluators of symbolic regression, implemented from their descriptions and measured in the same run.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "ir/expression.h"
#include "runtime/data_view.h"

namespace srjit {

/// Columns and a target of equal lengths, in host memory.
struct BenchData {
  std::vector<std::vector<float>> columns;
  std::vector<float> target;

  std::size_t rows() const noexcept { return target.size(); }
  /// Refers to this object.
  DataView view() const;
};

/// A published design. Computes f32 fast (approximate) results. Not thread-safe. Throws CudaFailure, BenchFailure.
class Baseline {
 public:
  virtual ~Baseline() = default;
  /// Prepares new expressions, compilation included. Throws BenchFailure for an operator that the design lacks.
  virtual void prepare(std::span<const Expression> expressions) = 0;
  /// One step: new parameters (concatenated over expressions, as parameterOffsets() defines) to sums of squared errors
  /// on the host.
  virtual void losses(std::span<const double> parameters, std::span<double> sums) = 0;
  /// One step with the matrix read back: expression e's row r at out[e * rows + r].
  virtual void predictions(std::span<const double> parameters, std::span<float> out) = 0;
  /// Device seconds of the kernels of the last step.
  virtual double kernelSeconds() const = 0;
};

struct BaselineInfo {
  const char* name;
  const char* doc;
  /// Copies the data. `ordinal` is the GPU; designs of the processor ignore it. Throws CudaFailure or BenchFailure if
  /// this machine cannot run the design.
  std::unique_ptr<Baseline> (*make)(const BenchData& data, unsigned ordinal);
  std::size_t unit = 1;   ///< expressions per compilation, the granularity of its cost
  bool compiles = false;  ///< whether it compiles code of the expressions
};

/// All designs, those with the shortest preparation first: time that a design leaves goes to the next ones.
std::span<const BaselineInfo> allBaselines();

/// Index of each expression's first parameter in the concatenated parameters, and their total number.
std::vector<std::uint32_t> parameterOffsets(std::span<const Expression> expressions);

/// The values of an expression in rows `first` to first + out.size() - 1 by the loop of `cpu-switch`. Thread-safe.
void runSwitch(const Expression& expression, std::span<const std::vector<float>> columns,
               std::span<const float> parameters, std::size_t first, std::span<float> out);

}  // namespace srjit
