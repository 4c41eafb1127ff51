// The measurement of functions' errors: what it takes for an error, and the program on a few arguments.
#include "tools/accuracy/reference.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "ir/numbers/random.h"
#include "ir/rows.h"
#include "tests/tools/process.h"

namespace srjit {
namespace {

using testing::HasSubstr;

constexpr double kWrongKind = std::numeric_limits<double>::infinity();

template <class T>
void expectError(Op op, T x, T y, T got, double error) {
  Worst<T> worst;
  updateWorst<T>(op, std::vector<T>{x}, std::vector<T>{y}, std::vector<T>{got}, worst);
  const double exact = exactError(op, Sample<T>{x, y, got});
  if (std::isinf(error)) {
    EXPECT_EQ(exact, error) << infoOf(op).name << ' ' << x;
  } else {
    EXPECT_NEAR(exact, error, 1e-6) << infoOf(op).name << ' ' << x;
  }
  EXPECT_EQ(worst.error, exact) << infoOf(op).name << ' ' << x;
  EXPECT_EQ(worst.wrong, std::isinf(error) ? 1U : 0U) << infoOf(op).name << ' ' << x;
}

// e is 2.71828182845904524; numbers of f32 around it are 2^-22 apart, and those of f64 2^-51.
TEST(Accuracy, ErrorsAreInUnitsOfTheLastPlace) {
  expectError<float>(Op::kExp, 1, 0, 0x1.5bf0a8p+1F, 0.346233);
  expectError<float>(Op::kExp, 1, 0, 0x1.5bf0aap+1F, 0.653767);
  expectError<double>(Op::kExp, 1, 0, 0x1.5bf0a8b145769p+1, 0.325531);
  expectError<float>(Op::kDiv, 1, 3, 0x1.555556p-2F, 1.0 / 3);
  expectError<float>(Op::kExp, -100, 0, 0, std::ldexp(std::exp(-100.0), 149));  // a subnormal number
  expectError<float>(Op::kSqrt, 4, 0, 2, 0);
}

TEST(Accuracy, BeyondTheLargestNumberIsThePowerOfTwoThatFollows) {
  constexpr float kInf = std::numeric_limits<float>::infinity(), kMost = std::numeric_limits<float>::max();
  expectError<float>(Op::kExp, 100, 0, kInf, 0);
  expectError<float>(Op::kExp, 100, 0, kMost, 1);
  expectError<float>(Op::kDiv, kMost, 1, kInf, 1);
  expectError<double>(Op::kExp, 1000, 0, std::numeric_limits<double>::infinity(), 0);
}

TEST(Accuracy, WrongKindsOfResultsAreInfiniteErrors) {
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  expectError<float>(Op::kLog, -1, 0, kNaN, 0);
  expectError<float>(Op::kLog, -1, 0, 1, kWrongKind);
  expectError<float>(Op::kExp, 1, 0, kNaN, kWrongKind);
  expectError<float>(Op::kSin, -0.0F, 0, -0.0F, 0);
  expectError<float>(Op::kSin, -0.0F, 0, 0.0F, kWrongKind);
  expectError<float>(Op::kLog, 0, 0, -std::numeric_limits<float>::infinity(), 0);
}

template <class T>
class AccuracyOf : public testing::Test {};
using Precisions = testing::Types<float, double>;
TYPED_TEST_SUITE(AccuracyOf, Precisions);

// Of results that are up to four numbers beside those of the C library.
TYPED_TEST(AccuracyOf, AScanMissesNoWorseResultByMoreThanItSays) {
  using T = TypeParam;
  Random random(4);
  for (const Op op : referenceOps()) {
    for (int batch = 0; batch < 20; ++batch) {
      std::vector<T> xs, ys, results;
      double most = -1;
      std::size_t wrong = 0;
      for (int i = 0; i < 20; ++i) {
        xs.push_back(randomArgument<T>(random));
        ys.push_back(randomArgument<T>(random));
        T got = applyRow<T>(op, xs.back(), ys.back(), T(0));
        const int steps = random.between(-4, 4);
        const T towards = std::copysign(std::numeric_limits<T>::infinity(), static_cast<T>(steps));
        for (int step = 0; step < std::abs(steps); ++step) got = std::nextafter(got, towards);
        results.push_back(got);
        const double error = exactError(op, Sample<T>{xs.back(), ys.back(), got});
        most = std::max(most, error);
        wrong += std::isinf(error) ? 1 : 0;
      }
      Worst<T> worst;
      updateWorst<T>(op, xs, ys, results, worst);
      EXPECT_LE(worst.error, most) << infoOf(op).name;
      if (std::isfinite(most)) {
        EXPECT_GE(worst.error, most - 0x1p-9) << infoOf(op).name;
      }
      EXPECT_EQ(worst.wrong, wrong) << infoOf(op).name;
    }
  }
}

// A result next to a power of two, whose error a scan takes for twice as large, hides no larger one.
TEST(Accuracy, PowersOfTwoHideNothing) {
  const Sample<float> next_to_eight{3, 0, 0x1.000002p+3F};
  EXPECT_EQ(exactError(Op::kExp2, next_to_eight), 1);
  Sample<float> larger{0.25F, 0, 0};
  double error = 0;
  while (error < 1.2 || error > 1.8) {
    larger.x = std::nextafter(larger.x, 1.0F);
    larger.got = std::nextafter(std::exp2(larger.x), 2.0F);
    error = exactError(Op::kExp2, larger);
  }
  const std::vector<float> xs = {next_to_eight.x, larger.x}, results = {next_to_eight.got, larger.got};
  Worst<float> worst;
  updateWorst<float>(Op::kExp2, xs, {}, results, worst);
  EXPECT_EQ(worst.sample.x, larger.x);
  EXPECT_EQ(worst.error, error);
}

Outcome runAccuracy(std::vector<std::string> words) {
  words.insert(words.begin(), std::filesystem::path(SRJIT_COMMAND).replace_filename("sr-jit-accuracy").string());
  return runProgram(words, "/");
}

TEST(AccuracySlow, EveryFunctionIsWithinTheBoundOfItsTable) {
  for (const char* precision : {"f32", "f64"}) {
    const Outcome outcome = runAccuracy({"--arguments", "100000", "--precision", precision});
    EXPECT_EQ(outcome.status, 0) << outcome.out << outcome.err;
    for (const Op op : referenceOps()) {
      EXPECT_THAT('\n' + outcome.out, HasSubstr('\n' + std::string(infoOf(op).name) + ' '));
    }
  }
}

TEST(AccuracySlow, WritesWhatItFinds) {
  const Scratch scratch;
  const std::string path = scratch.write("accuracy.json", "");
  const Outcome outcome = runAccuracy({"exp", "pow", "--arguments", "1000", "--math", "fast", "--json", path});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  const auto json = nlohmann::json::parse(contentOf(path));
  EXPECT_EQ(json["math"], "fast");
  ASSERT_EQ(json["functions"].size(), 2U);
  EXPECT_EQ(json["functions"][1]["function"], "pow");
  EXPECT_TRUE(json["functions"][0]["bound_ulp"].is_null());
  EXPECT_GT(json["functions"][0]["error_ulp"].get<double>(), 0.5);
}

TEST(AccuracySlow, ReportsWrongUsageAndMissingDevices) {
  EXPECT_EQ(runAccuracy({"nothing"}).status, 2);
  EXPECT_EQ(runAccuracy({"--device", "cuda:99"}).status, 3);
}

}  // namespace
}  // namespace srjit
