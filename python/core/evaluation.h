// What evaluations that wait and those in flight have in common.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/bindings.h"
#include "runtime/engine.h"
#include "runtime/loss_text.h"

namespace srjit::python {

/// Predictions or derivatives, one-dimensional: memory of the caller.
template <class T>
using Output = nb::ndarray<T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T>
std::span<T> spanOf(const Output<T>& out) {
  return {out.data(), out.size()};
}

/// Handles and copies of the arguments of an evaluation: it may go on when its caller no longer waits.
struct EvaluationCall {
  EvaluationCall(const Engine& of, const CompiledTokens& compiled, const nb::object& data_set,
                 const Numbers<double>& numbers)
      : engine(of),
        program(compiled.program),
        data(nb::cast<Dataset>(data_set)),
        parameters(numbers.data(), numbers.data() + numbers.size()) {}

  Engine engine;
  Program program;
  Dataset data;
  std::vector<double> parameters;
};

LossOptions lossOptionsOf(const std::string& loss, const std::string& nan);
DerivativesBy derivativesBy(std::string_view word);

}  // namespace srjit::python
