// Columns in the memory of a model of a GPU, which scenarios give to calls.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "runtime/data_view.h"
#include "tests/gpu_model/fake_driver.h"

namespace srjit {

/// Memory of the GPU that belongs to the caller.
class CallersColumns {
 public:
  CallersColumns(FakeDriver& driver, std::size_t rows, std::size_t columns) : driver_(driver) {
    std::vector<float> values(rows * columns);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 17) - 3;
    matrix_ = {driver.allocateForeign(std::as_bytes(std::span(values))), rows,           columns, sizeof(float),
               static_cast<std::ptrdiff_t>(rows * sizeof(float)),        Precision::kF32};
  }
  ~CallersColumns() { driver_.freeForeign(matrix_.pointer); }
  CallersColumns(const CallersColumns&) = delete;
  CallersColumns& operator=(const CallersColumns&) = delete;

  const DeviceMatrix& matrix() const { return matrix_; }
  std::vector<double> read() const {
    const std::vector<std::byte> bytes =
        driver_.readForeign(matrix_.pointer, matrix_.rows * matrix_.columns * sizeof(float));
    const std::span numbers(reinterpret_cast<const float*>(bytes.data()), bytes.size() / sizeof(float));
    return {numbers.begin(), numbers.end()};
  }

 private:
  FakeDriver& driver_;
  DeviceMatrix matrix_;
};

}  // namespace srjit
