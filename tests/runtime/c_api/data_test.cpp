// Data through srjit.h: matrices of any strides, in either memory, and parts of data.
#include <cstring>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/gpu_model/device_engine.h"
#include "tests/runtime/c_api/caller.h"

namespace srjit::c_api {
namespace {

using ::testing::HasSubstr;

TEST_F(CInterface, MatricesMayHaveAnyStrides) {
  const auto program = compile({"x0 + 10*x1"});
  const std::vector<double> expected = {51, 42, 33, 24, 15};
  const auto predictions = [&](const srjit_matrix& columns) {
    srjit_data view = view_;
    view.columns = &columns;
    const auto data =
        made<srjit_dataset>([&](auto to, auto error) { return srjit_dataset_create(engine_.get(), &view, to, error); });
    std::vector<double> out(5);
    srjit_failures* failures = nullptr;
    srjit_error error = newError();
    EXPECT_EQ(srjit_predict(engine_.get(), program.get(), data.get(), nullptr, 0, SRJIT_F64, out.data(), 5, &failures,
                            &error),
              SRJIT_OK)
        << error.message;
    EXPECT_EQ(failures, nullptr);
    return out;
  };
  EXPECT_EQ(predictions(columns_), expected);

  const std::vector<double> by_column = {1, 2, 3, 4, 5, 5, 4, 3, 2, 1};
  srjit_matrix dense = columns_;
  dense.data = by_column.data();
  dense.row_stride = dense.column_stride = 0;
  EXPECT_EQ(predictions(dense), expected);

  srjit_matrix backwards = columns_;
  backwards.data = x_.data() + 8;
  backwards.row_stride = -backwards.row_stride;
  EXPECT_EQ(predictions(backwards), (std::vector<double>{15, 24, 33, 42, 51}));

  std::vector<char> odd(1 + 10 * sizeof(double));
  std::memcpy(odd.data() + 1, by_column.data(), 10 * sizeof(double));
  dense.data = odd.data() + 1;
  EXPECT_EQ(predictions(dense), expected);

  const std::vector<float> floats(by_column.begin(), by_column.end());
  dense.data = floats.data();
  dense.type = SRJIT_F32;
  EXPECT_EQ(predictions(dense), expected);
}

TEST_F(CInterface, ManyRowsAreGatheredInBlocks) {
  constexpr std::size_t kRows = 1000;
  std::vector<double> values(3 * kRows);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i);
  auto matrix = sized<srjit_matrix>();
  matrix.data = values.data();
  matrix.rows = kRows;
  matrix.columns = 3;
  matrix.row_stride = 3 * sizeof(double);
  matrix.column_stride = sizeof(double);
  matrix.type = SRJIT_F64;
  auto view = sized<srjit_data>();
  view.columns = &matrix;
  const auto data =
      made<srjit_dataset>([&](auto to, auto error) { return srjit_dataset_create(engine_.get(), &view, to, error); });
  const auto program = compile({"x0", "x1", "x2"});
  std::vector<double> out(values.size());
  srjit_failures* failures = nullptr;
  ASSERT_EQ(srjit_predict(engine_.get(), program.get(), data.get(), nullptr, 0, SRJIT_F64, out.data(), out.size(),
                          &failures, nullptr),
            SRJIT_OK);
  for (std::size_t r = 0; r < kRows; ++r) {
    for (std::size_t c = 0; c < 3; ++c) ASSERT_EQ(out[c * kRows + r], values[3 * r + c]) << r << ' ' << c;
  }
}

TEST_F(CInterface, PartsOfData) {
  const auto program = compile({"x0"});
  const auto rowsOf = [](const srjit_dataset* data) {
    auto info = sized<srjit_dataset_info>();
    EXPECT_EQ(srjit_dataset_get_info(data, &info, nullptr), SRJIT_OK);
    EXPECT_EQ(info.columns, 2U);
    EXPECT_EQ(info.row_groups, 1U);
    return info.rows;
  };
  const auto rows =
      made<srjit_dataset>([&](auto to, auto e) { return srjit_dataset_rows(engine_.get(), data_.get(), 1, 3, to, e); });
  EXPECT_EQ(rowsOf(rows.get()), 3U);
  const auto sample = made<srjit_dataset>(
      [&](auto to, auto e) { return srjit_dataset_sample(engine_.get(), data_.get(), 1, 7, to, e); });
  EXPECT_EQ(rowsOf(sample.get()), 5U);
  const std::vector<double> w = {0, 0, 0, 0, 1};
  const srjit_matrix weights = columnOf(w);
  const auto weighted = made<srjit_dataset>(
      [&](auto to, auto e) { return srjit_dataset_with_weights(engine_.get(), data_.get(), &weights, 0, to, e); });
  double value = 0;
  auto losses = sized<srjit_losses>();
  losses.count = 1;
  losses.values = &value;
  ASSERT_EQ(srjit_prepare(engine_.get(), program.get(), weighted.get(), nullptr, nullptr), SRJIT_OK);
  ASSERT_EQ(srjit_loss(engine_.get(), program.get(), weighted.get(), nullptr, 0, nullptr, &losses, nullptr), SRJIT_OK);
  EXPECT_EQ(value, 36);
  EXPECT_THAT(invalid([&](auto e) {
                srjit_dataset* none = nullptr;
                return srjit_dataset_rows(engine_.get(), data_.get(), 4, 2, &none, e);
              }),
              HasSubstr("row"));
}

TEST(CInterfaceOnDevice, ColumnsAreUsedInPlace) {
  FakeMachine machine;
  const srjit_engine engine{machine.engine({.precision = Precision::kF64})};
  std::vector<double> x = {1, 2, 3, 4}, y = {2, 4, 6, 8};
  srjit_matrix columns = columnOf(x), target = columnOf(y);
  auto view = sized<srjit_data>();
  view.columns = &columns;
  view.target = &target;
  columns.on_device = 1;
  EXPECT_THAT(invalid([&](auto e) {
                srjit_dataset* none = nullptr;
                return srjit_dataset_create(&engine, &view, &none, e);
              }),
              HasSubstr("some are on the device"));
  target.on_device = 1;
  const auto onDevice = [&](const std::vector<double>& values) {
    return reinterpret_cast<const void*>(machine.driver.allocateForeign(std::as_bytes(std::span(values))));
  };
  columns.data = onDevice(x);
  target.data = onDevice(y);
  const auto data = made<srjit_dataset>([&](auto to, auto e) { return srjit_dataset_create(&engine, &view, to, e); });
  const std::int32_t codes[] = {SRJIT_VARIABLE, SRJIT_PARAMETER, 3};
  const std::int64_t offsets[] = {0, 3};
  auto population = sized<srjit_population>();
  population.expressions = 1;
  population.codes = codes;
  population.offsets = offsets;
  const double parameter = 3;
  double value = 0;
  auto losses = sized<srjit_losses>();
  losses.count = 1;
  losses.values = &value;
  srjit_error error = newError();
  ASSERT_EQ(srjit_population_loss(&engine, &population, data.get(), &parameter, 1, nullptr, nullptr, &losses, &error),
            SRJIT_OK)
      << error.message;
  EXPECT_EQ(value, 7.5);  // of 1, 2, 3, 4

  const srjit_engine cpu{cpuEngine(Precision::kF64)};
  refusal(SRJIT_ERROR_UNSUPPORTED, [&](auto e) {
    srjit_dataset* none = nullptr;
    return srjit_dataset_create(&cpu, &view, &none, e);
  });
}

}  // namespace
}  // namespace srjit::c_api
