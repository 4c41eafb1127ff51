// Predictions and derivatives through srjit.h in a caller's memory of a GPU, on a model of one.
#include <cstring>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/cuda/handles.h"
#include "tests/gpu_model/device_engine.h"
#include "tests/runtime/c_api/caller.h"

namespace srjit::c_api {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsNan;
using ::testing::SizeIs;

constexpr double kUnwritten = 12345;

/// An engine in f64 with three rows of x0 = 1, 2, 3 and x1 = 5, 7, 9, and p0*x0 + x1, a text that is no expression, and
/// x0*x1.
class CInterfaceDeviceOutput : public ::testing::Test {
 protected:
  CInterfaceDeviceOutput() {
    columns_.data = x_.data();
    columns_.rows = 3;
    columns_.columns = 2;
    columns_.type = SRJIT_F64;
    view_.columns = &columns_;
    data_ = made<srjit_dataset>([&](auto to, auto error) { return srjit_dataset_create(&engine_, &view_, to, error); });
    const char* const texts[] = {"p0*x0 + x1", "x0 +", "x0*x1"};
    const auto tokens = made<srjit_tokens>(
        [&](auto to, auto error) { return srjit_parse(texts, 3, SRJIT_TEXT_INFIX, nullptr, 0, to, nullptr, error); });
    program_ = made<srjit_program>(
        [&](auto to, auto error) { return srjit_compile_tokens(&engine_, tokens.get(), nullptr, to, error); });
  }

  /// Memory of the GPU for `outputs` x 3 results, in which there are other numbers.
  srjit_matrix memoryFor(std::size_t outputs) {
    const std::vector<double> numbers(3 * outputs, kUnwritten);
    auto matrix = sized<srjit_matrix>();
    matrix.data = reinterpret_cast<const void*>(machine_.driver.allocateForeign(std::as_bytes(std::span(numbers))));
    matrix.rows = outputs;
    matrix.columns = 3;
    matrix.row_stride = 3 * sizeof(double);
    matrix.column_stride = sizeof(double);
    matrix.type = SRJIT_F64;
    matrix.on_device = 1;
    return matrix;
  }
  std::vector<double> numbersOf(const srjit_matrix& matrix) {
    std::vector<double> numbers(matrix.rows * matrix.columns);
    const std::vector<std::byte> bytes =
        machine_.driver.readForeign(reinterpret_cast<std::uint64_t>(matrix.data), numbers.size() * sizeof(double));
    std::memcpy(numbers.data(), bytes.data(), bytes.size());
    return numbers;
  }

  std::int32_t predict(const srjit_matrix* out, std::uint64_t stream, srjit_failures** failures, srjit_error* error) {
    return srjit_predict_on_device(&engine_, program_.get(), data_.get(), &parameter_, 1, out, stream, failures, error);
  }
  std::int32_t jacobian(std::int32_t by, const srjit_matrix* out, srjit_failures** failures, srjit_error* error) {
    return srjit_jacobian_on_device(&engine_, program_.get(), data_.get(), &parameter_, 1, by, out, 0, failures, error);
  }
  /// Why predictions are not written to `out`.
  std::string refused(std::int32_t code, const srjit_matrix* out) {
    auto* failures = reinterpret_cast<srjit_failures*>(0x10);
    const std::string message = refusal(code, [&](auto error) { return predict(out, 0, &failures, error); });
    EXPECT_EQ(failures, nullptr);
    return message;
  }

  FakeMachine machine_{{.lag = true}};
  srjit_engine engine_{machine_.engine({.precision = Precision::kF64})};
  std::vector<double> x_ = {1, 2, 3, 5, 7, 9};
  srjit_matrix columns_ = sized<srjit_matrix>();
  srjit_data view_ = sized<srjit_data>();
  double parameter_ = 10;
  Owned<srjit_dataset> data_;
  Owned<srjit_program> program_;
};

// The shape does not matter, nor which of the two strides is that of adjacent numbers. The caller's stream may still
// use the memory for earlier results.
TEST_F(CInterfaceDeviceOutput, HasPredictions) {
  const auto cuda = Cuda::open(machine_.driver.load().value(), 0).value();
  const CurrentContext current(*cuda);
  const Stream callers(cuda);
  for (const bool is_column : {false, true}) {
    srjit_matrix out = memoryFor(3);
    if (is_column) {
      out.rows = 9;
      out.columns = 1;
      out.row_stride = out.column_stride = 0;
    }
    callers.fill(reinterpret_cast<std::uint64_t>(out.data), 0x7f, 9 * sizeof(double));
    srjit_failures* failures = nullptr;
    srjit_error error = newError();
    ASSERT_EQ(predict(&out, reinterpret_cast<std::uint64_t>(callers.get()), &failures, &error), SRJIT_OK)
        << error.message;
    EXPECT_THAT(messages(failures), ElementsAre(HasSubstr("1: expected an operand")));
    callers.synchronize();
    EXPECT_THAT(numbersOf(out), ElementsAre(15, 27, 39, IsNan(), IsNan(), IsNan(), 5, 14, 27));
  }
}

TEST_F(CInterfaceDeviceOutput, HasDerivatives) {
  const srjit_matrix by_parameters = memoryFor(1), by_variables = memoryFor(6);
  srjit_failures* failures = nullptr;
  srjit_error error = newError();
  ASSERT_EQ(jacobian(SRJIT_BY_PARAMETERS, &by_parameters, &failures, &error), SRJIT_OK) << error.message;
  EXPECT_THAT(messages(failures), SizeIs(1));
  EXPECT_THAT(numbersOf(by_parameters), ElementsAre(1, 2, 3));
  ASSERT_EQ(jacobian(SRJIT_BY_VARIABLES, &by_variables, &failures, &error), SRJIT_OK) << error.message;
  EXPECT_THAT(messages(failures), SizeIs(1));
  EXPECT_THAT(numbersOf(by_variables),
              ElementsAre(10, 10, 10, 1, 1, 1, IsNan(), IsNan(), IsNan(), IsNan(), IsNan(), IsNan(), 5, 7, 9, 1, 2, 3));
}

TEST_F(CInterfaceDeviceOutput, RefusesOtherMemory) {
  const srjit_matrix good = memoryFor(3);
  EXPECT_EQ(refused(SRJIT_ERROR_INVALID, nullptr), "out is NULL");
  const auto expectRefused = [&](const char* text, const auto& change, std::int32_t code = SRJIT_ERROR_INVALID) {
    srjit_matrix bad = good;
    change(bad);
    EXPECT_THAT(refused(code, &bad), HasSubstr(text));
  };
  expectRefused("data of out is NULL", [](auto& out) { out.data = nullptr; });
  expectRefused("on_device of out is 0", [](auto& out) { out.on_device = 0; });
  expectRefused("output of 6 numbers, expected 3 expressions x 3 rows", [](auto& out) { out.rows = 2; });
  const std::uint64_t many = std::uint64_t{1} << 61;
  expectRefused("2305843009213693952", [&](auto& out) { out.rows = 0, out.columns = many; });
  expectRefused("2305843009213693952", [&](auto& out) { out.rows = many, out.columns = 0; });
  expectRefused("expected adjacent numbers", [](auto& out) { out.column_stride = 2 * sizeof(double); });
  expectRefused("in f32, but the engine computes in f64", [](auto& out) { out.type = SRJIT_F32; });
  expectRefused(
      "output at 0x40", [](auto& out) { out.data = reinterpret_cast<const void*>(0x40); }, SRJIT_ERROR_UNSUPPORTED);
  EXPECT_EQ(numbersOf(good), std::vector<double>(9, kUnwritten));

  auto* failures = reinterpret_cast<srjit_failures*>(0x10);
  EXPECT_THAT(invalid([&](auto error) { return jacobian(7, &good, &failures, error); }), HasSubstr("by is 7"));
  EXPECT_EQ(failures, nullptr);
  invalid([&](auto error) { return predict(&good, 0, nullptr, error); });
}

TEST_F(CInterface, OutputOnDeviceNeedsAGpu) {
  const auto program = compile({"x0"});
  auto out = columnOf(y_);
  out.on_device = 1;
  srjit_failures* failures = nullptr;
  refusal(SRJIT_ERROR_UNSUPPORTED, [&](auto error) {
    return srjit_predict_on_device(engine_.get(), program.get(), data_.get(), nullptr, 0, &out, 0, &failures, error);
  });
  EXPECT_EQ(y_, (std::vector<double>{3, 5, 7, 9, 11}));
}

}  // namespace
}  // namespace srjit::c_api
