// A caller of srjit.h, for tests: an engine with data.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/c_api/handles.h"
#include "tests/runtime/c_api/owned.h"

namespace srjit::c_api {

inline srjit_error newError() { return sized<srjit_error>(); }

/// Calls `create(object, error)`, which must succeed.
template <class T, class Create>
Owned<T> made(const Create& create) {
  T* object = nullptr;
  srjit_error error = newError();
  EXPECT_EQ(create(&object, &error), SRJIT_OK) << error.message;
  return Owned<T>(object);
}

/// The code and message of a call that must fail.
template <class Call>
std::string refusal(std::int32_t code, const Call& call) {
  srjit_error error = newError();
  EXPECT_EQ(call(&error), code) << error.message;
  EXPECT_EQ(error.code, code);
  return error.message;
}

/// The message of a call that must fail for its arguments.
template <class Call>
std::string invalid(const Call& call) {
  return refusal(SRJIT_ERROR_INVALID, call);
}

inline srjit_matrix columnOf(const std::vector<double>& values) {
  auto matrix = sized<srjit_matrix>();
  matrix.data = values.data();
  matrix.rows = values.size();
  matrix.columns = 1;
  matrix.type = SRJIT_F64;
  return matrix;
}

inline std::vector<std::string> messages(srjit_failures* list) {
  Owned<srjit_failures> failures(list);
  std::vector<std::string> found;
  for (std::uint64_t i = 0; i < srjit_failures_count(list); ++i) {
    srjit_error error = newError();
    std::uint64_t expression = 0;
    EXPECT_EQ(srjit_failures_get(list, i, &expression, &error), SRJIT_OK);
    found.push_back(std::to_string(expression) + ": " + error.message);
  }
  return found;
}

/// An engine in f64 on the processor, with columns x0 = 1..5 and x1 = 5..1, in rows, and the target 2 x0 + 1.
class CInterface : public ::testing::Test {
 protected:
  CInterface() {
    auto options = sized<srjit_engine_options>();
    options.device = "cpu";
    options.precision = SRJIT_F64;
    options.threads = 2;
    engine_ = made<srjit_engine>([&](auto to, auto error) { return srjit_engine_create(&options, to, error); });
    columns_.data = x_.data();
    columns_.rows = 5;
    columns_.columns = 2;
    columns_.row_stride = 2 * sizeof(double);
    columns_.column_stride = sizeof(double);
    columns_.type = SRJIT_F64;
    view_.columns = &columns_;
    view_.target = &target_;
    data_ = made<srjit_dataset>(
        [&](auto to, auto error) { return srjit_dataset_create(engine_.get(), &view_, to, error); });
  }

  Owned<srjit_program> compile(const std::vector<const char*>& texts) {
    srjit_failures* failures = nullptr;
    const auto tokens = made<srjit_tokens>([&](auto to, auto error) {
      return srjit_parse(texts.data(), texts.size(), SRJIT_TEXT_INFIX, nullptr, 0, to, &failures, error);
    });
    Owned<srjit_failures> owned(failures);
    return made<srjit_program>(
        [&](auto to, auto error) { return srjit_compile_tokens(engine_.get(), tokens.get(), nullptr, to, error); });
  }

  std::vector<double> x_ = {1, 5, 2, 4, 3, 3, 4, 2, 5, 1}, y_ = {3, 5, 7, 9, 11};
  srjit_matrix columns_ = sized<srjit_matrix>(), target_ = columnOf(y_);
  srjit_data view_ = sized<srjit_data>();
  Owned<srjit_engine> engine_;
  Owned<srjit_dataset> data_;
};

}  // namespace srjit::c_api
