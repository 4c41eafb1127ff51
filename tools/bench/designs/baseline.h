// Published evaluators of symbolic regression, implemented from their descriptions and measured in the same run, after
// a check of their results.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ir/error.h"
#include "ir/expression.h"
#include "runtime/cuda/context.h"
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

struct BaselineAgreement {
  std::size_t compared = 0;  ///< predictions compared
  std::size_t promised = 0;  ///< of these, predictions with a finite error bound
  std::size_t sums = 0;      ///< finite sums that were compared with the predictions

  /// "checked: 1800 of 2048 predictions within their bound, 60 sums".
  std::string text() const;
};

/// Agreement of sums of squared errors with those of another evaluator (compareSums()).
struct SumAgreement {
  std::size_t compared = 0;
  std::size_t finite = 0;  ///< of the other evaluator's, sums small enough to be compared
  std::size_t same = 0;

  /// "1995 of 2000 sums as sr-jit's, 1900 of them finite".
  std::string text() const;
};

/// Throws BenchFailure (kInvalid) if a span of a step does not have the size that the prepared expressions need.
void checkStepSize(std::size_t got, std::size_t expected, const char* what);

/// Samples `sampled` expressions, half of them among those that look finite, prepares the baseline with only the
/// sample, and compares predictions in `rows_of_each` random rows with the float64 reference, within its error bound
/// for f32 `fast`, and sums of squared errors with those of all predictions. Skips predictions without a finite bound,
/// and sums that are not finite. `parameters` are those of all expressions. Needs at most 256 MiB of predictions. The
/// baseline must be prepared again afterwards. Throws BenchFailure for the first wrong number, with its position, value
/// and expected value; if fewer than a quarter of the predictions or an eighth of the sums could be compared; and what
/// the baseline throws.
BaselineAgreement checkBaseline(Baseline& baseline, std::span<const Expression> expressions, const BenchData& data,
                                std::span<const double> parameters, std::uint64_t seed = 1, std::size_t sampled = 64,
                                std::size_t rows_of_each = 32);

/// Compares the sums of a whole population, whose functions may be approximated in another way. Finite sums agree if
/// they differ by less than 1 %, or by the effect of relative errors of 1e-4 in all predictions. Reference sums that
/// are not finite, or above a thousand times the target's sum of squares (a few rows next to a pole), agree with any
/// sum of at least ten times the target's. Single expressions may differ, where the rounding of one operand decides (a
/// pole, a difference of large numbers). Throws BenchFailure with the first difference if more than one sum and more
/// than 2 % of either kind differ, or if no reference sum is finite.
SumAgreement compareSums(std::span<const double> sums, std::span<const double> expected, std::span<const float> target);

struct BenchFailure {
  Error error;
};

[[noreturn]] inline void failBench(Errc code, std::string message) {
  throw BenchFailure{{code, std::move(message), {}}};
}

/// The value; throws BenchFailure for an error.
template <class T>
T must(Result<T> result) {
  if (!result) throw BenchFailure{std::move(result).error()};
  return std::move(*result);
}

/// Converts exceptions of `body` to an error.
template <class Body>
Status caught(const Body& body) {
  try {
    body();
  } catch (const BenchFailure& failure) {
    return failure.error;
  } catch (const CudaFailure& failure) {
    return failure.error();
  } catch (const std::exception& failure) {
    return Error{Errc::kMachine, failure.what(), {}};
  }
  return okStatus();
}

}  // namespace srjit
