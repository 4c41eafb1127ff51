// The measurement of functions' errors: what it takes for an error, and the program on a few arguments.
#include "tools/accuracy/reference.h"

#include <cmath>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "ir/numbers/random.h"
#include "tests/tools/process.h"

namespace srjit {
namespace {

using testing::DoubleNear;
using testing::HasSubstr;

constexpr double kWrongKind = std::numeric_limits<double>::infinity();

/// The error of a scan that sees nothing else, and the exact one.
template <class T>
std::pair<double, double> errorsOf(Op op, T x, T y, T got) {
  const std::vector<T> xs = {x}, ys = {y}, results = {got};
  const Worst<T> worst = worstOf<T>(op, xs, ys, results);
  return {worst.error, exactError(op, Sample<T>{x, y, got})};
}

template <class T>
void expectError(Op op, T x, T y, T got, double error) {
  const auto [scanned, exact] = errorsOf(op, x, y, got);
  EXPECT_THAT(scanned, std::isinf(error) ? testing::Eq(error) : testing::Matcher<double>(DoubleNear(error, 2e-3)))
      << infoOf(op).name << ' ' << x;
  EXPECT_THAT(exact, std::isinf(error) ? testing::Eq(error) : testing::Matcher<double>(DoubleNear(error, 1e-6)))
      << infoOf(op).name << ' ' << x;
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

// Next to a power of two a scan may give twice the error, since it knows the true value less exactly.
TYPED_TEST(AccuracyOf, AScanFindsWhatMpfrFinds) {
  Random random(4);
  for (const Op op : referenceOps()) {
    for (int i = 0; i < 200; ++i) {
      const auto x = static_cast<TypeParam>(random.magnitude(-8, 3)),
                 y = static_cast<TypeParam>(random.magnitude(-3, 3));
      const auto got = static_cast<TypeParam>(random.magnitude(-8, 8));
      const auto [scanned, exact] = errorsOf(op, x, y, got);
      if (std::isinf(exact)) {
        EXPECT_EQ(scanned, exact) << infoOf(op).name << ' ' << x << ' ' << y << ' ' << got;
      } else {
        const double tolerance = std::ldexp(1 + exact, -9);
        EXPECT_GE(scanned, exact - tolerance) << infoOf(op).name << ' ' << x << ' ' << y << ' ' << got;
        EXPECT_LE(scanned, 2 * exact + tolerance) << infoOf(op).name << ' ' << x << ' ' << y << ' ' << got;
      }
    }
  }
}

Outcome runAccuracy(std::vector<std::string> words) {
  words.insert(words.begin(), std::filesystem::path(SRJIT_COMMAND).replace_filename("sr-jit-accuracy").string());
  return runProgram(words, "/");
}

TEST(AccuracySlow, EveryFunctionIsWithinTheBoundOfItsTable) {
  for (const char* precision : {"f32", "f64"}) {
    const Outcome outcome = runAccuracy({"--arguments", "100000", "--precision", precision});
    EXPECT_EQ(outcome.status, 0) << outcome.out << outcome.err;
    for (const Op op : referenceOps()) EXPECT_THAT(outcome.out, HasSubstr(std::string(infoOf(op).name) + ' '));
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

TEST(AccuracySlow, RejectsWrongUsage) {
  EXPECT_EQ(runAccuracy({"nothing"}).status, 2);
  EXPECT_EQ(runAccuracy({"--device", "cuda:99"}).status, 3);
}

}  // namespace
}  // namespace srjit
