// What interpreters of symbolic regression on GPUs usually are, to compare with: a stack in local memory, one row a
// thread, a tree of comparisons a token; approximate f32 instructions. Written as PTX.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "ir/expression.h"
#include "runtime/cuda.h"

namespace srjit {

/// Expressions of + - * / pow abs log exp inv sqrt without parameters, whose stacks hold at most kStackEntries numbers.
/// Not thread-safe. Throws CudaFailure.
class StackBaseline {
 public:
  static constexpr std::size_t kStackEntries = 32;

  /// `columns` have equal lengths.
  StackBaseline(unsigned ordinal, std::span<const Expression> expressions, std::span<const std::vector<float>> columns);

  /// Predictions of all expressions; seconds of the device.
  double runAtOnce() const;
  double runOneByOne() const;

  /// What the last run predicted of the first expressions: at e * rows + r.
  std::vector<float> predictions(std::size_t expressions) const;

 private:
  double time(unsigned launches, unsigned expressions_each) const;

  std::shared_ptr<const Cuda> cuda_;
  CurrentContext current_;
  std::shared_ptr<const Stream> stream_;
  Module module_;
  Kernel kernel_;
  DeviceBuffer columns_, tokens_, offsets_, out_;
  std::uint32_t rows_, expressions_;
};

}  // namespace srjit
