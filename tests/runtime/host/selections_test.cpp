// Rows, samples and other weights of data on the CPU: the results of an upload of the same numbers.
#include <optional>

#include <gmock/gmock.h>

#include "tests/generators/selections.h"

namespace srjit {
namespace {

class Selections : public testing::TestWithParam<Precision> {
 protected:
  Engine engine_ = Engine::create({.device = "cpu", .precision = GetParam(), .threads = 2}).value();

  Workload workload(std::size_t rows, bool weighted) const {
    const GeneratorOptions options{
        .seed = 77, .max_nodes = 20, .variables = 4, .parameters = 2, .parameter_probability = 0.3};
    Workload w = withShares(Workload::random(options, 8, rows, Spread::kSpecial, GetParam()));
    if (weighted) w.weights = otherWeights(rows);
    return w;
  }
  DataView named(const Workload& w) const {
    DataView view = w.view();
    view.names = ColumnNames{"a", "b", "c", "d"};
    return view;
  }
  std::string errorOf(const Result<Dataset>& made) const {
    if (made.ok()) return "no error";
    EXPECT_EQ(made.error().code, Errc::kInvalid);
    return made.error().message;
  }
};

TEST_P(Selections, RowsAreThoseOfAnUpload) {
  constexpr std::size_t kRows = 700;
  for (const bool weighted : {false, true}) {
    const Workload w = workload(kRows, weighted);
    std::optional<Dataset> data = engine_.upload(named(w)).value();
    for (const RowRun& range : someRanges(kRows)) {
      SCOPED_TRACE(testing::Message() << range.first << " + " << range.count);
      if (weighted && range.count == 1 && w.weights[range.first] == 0) continue;
      const Dataset some = engine_.rows(*data, range.first, range.count).value();
      expectSameResults(engine_, some, engine_.upload(named(rowsOf(w, {range}))).value(), w);
    }
    const Dataset inner = engine_.rows(*data, 33, 555).value();
    data.reset();
    expectSameResults(engine_, engine_.rows(inner, 67, 300).value(),
                      engine_.upload(named(rowsOf(w, {{100, 300}}))).value(), w, Tier::kCompile);
  }
}

TEST_P(Selections, SamplesAreThoseOfAnUpload) {
  constexpr std::size_t kRows = 1000;  // 8 groups, of which the last has 104 rows
  for (const bool weighted : {false, true}) {
    const Workload w = workload(kRows, weighted);
    const Dataset data = engine_.upload(named(w)).value();
    ASSERT_EQ(data.rowGroups(), 8U);
    for (const std::size_t groups : {1U, 3U, 8U}) {
      for (std::uint64_t seed = 0; seed < 4; ++seed) {
        const Dataset sample = engine_.sample(data, groups, seed).value();
        expectSameResults(engine_, sample, engine_.upload(named(rowsOf(w, sampleGroups(kRows, groups, seed)))).value(),
                          w);
      }
    }
  }
}

TEST_P(Selections, WeightsAreThoseOfAnUpload) {
  for (const std::size_t rows : {1U, 300U}) {
    for (const bool weighted : {false, true}) {
      Workload w = workload(rows, weighted);
      const Dataset data = engine_.upload(named(w)).value();
      w.weights = otherWeights(rows);
      for (double& weight : w.weights) weight += 0.5;
      const Dataset other = engine_.withWeights(data, w.weights).value();
      expectSameResults(engine_, other, engine_.upload(named(w)).value(), w);
      const std::vector<float> single(w.weights.begin(), w.weights.end());
      w.weights.assign(single.begin(), single.end());
      expectSameResults(engine_, engine_.withWeights(other, single).value(), engine_.upload(named(w)).value(), w);
    }
  }
}

TEST_P(Selections, DataWithoutATargetKeepTheirWeights) {
  Workload w = workload(200, true);
  w.target.clear();
  const Dataset data = engine_.upload(w.view()).value();
  expectSameDescription(engine_.rows(data, 20, 150).value(), engine_.upload(rowsOf(w, {{20, 150}}).view()).value());
}

TEST_P(Selections, ErrorsNameWhatIsWrong) {
  Workload w = workload(300, true);
  for (std::size_t r = 0; r < 10; ++r) w.weights[r] = 0;
  const Dataset data = engine_.upload(w.view()).value();
  EXPECT_EQ(errorOf(engine_.rows(data, 5, 0)), "data without rows");
  EXPECT_EQ(errorOf(engine_.rows(data, 5, 296)), "296 rows from index 5 on, of data with 300 rows");
  EXPECT_EQ(errorOf(engine_.rows(data, 301, 1)), "1 rows from index 301 on, of data with 300 rows");
  EXPECT_THAT(errorOf(engine_.rows(data, 5, SIZE_MAX)), testing::HasSubstr("of data with 300"));
  EXPECT_EQ(errorOf(engine_.rows(data, 0, 10)), "the weights of these rows are all zero");
  EXPECT_EQ(errorOf(engine_.sample(data, 0, 1)),
            "0 groups of rows of data with 3, expected at least 1 and at most all");
  EXPECT_EQ(errorOf(engine_.sample(data, 4, 1)),
            "4 groups of rows of data with 3, expected at least 1 and at most all");
  std::vector<double> weights(300, 1.0);
  weights[7] = -2;
  EXPECT_EQ(errorOf(engine_.withWeights(data, weights)),
            "weight -2 in row 8, expected a finite number that is not negative");
  weights.assign(300, 0);
  EXPECT_EQ(errorOf(engine_.withWeights(data, weights)), "the weights are all zero");
  weights.assign(299, 1);
  EXPECT_EQ(errorOf(engine_.withWeights(data, weights)), "the weights have 299 rows, expected 300 rows");
  weights.assign(300, 1);
  w.target.clear();
  w.weights.clear();
  EXPECT_EQ(errorOf(engine_.withWeights(engine_.upload(w.view()).value(), weights)), "weights without a target");
  const DeviceMatrix on_device{.pointer = 64, .rows = 300, .columns = 1, .row_stride = 4, .type = GetParam()};
  EXPECT_EQ(engine_.withWeights(data, on_device).error().code, Errc::kUnsupported);
}

TEST_P(Selections, DataOfAnotherEngineAreAnError) {
  const bool is_single = GetParam() == Precision::kF32;
  const Engine other =
      Engine::create({.device = "cpu", .precision = is_single ? Precision::kF64 : Precision::kF32}).value();
  Workload w = workload(300, false);
  for (std::vector<double>& column : w.columns) column.assign(300, 1.5);  // a number of both precisions
  const Dataset data = other.upload(w.view()).value();
  const std::string expected =
      is_single ? "data in f64, but the engine computes in f32" : "data in f32, but the engine computes in f64";
  EXPECT_EQ(errorOf(engine_.rows(data, 0, 1)), expected);
  EXPECT_EQ(errorOf(engine_.sample(data, 1, 1)), expected);
  EXPECT_EQ(errorOf(engine_.withWeights(data, std::vector<double>(300, 1.0))), expected);
}

INSTANTIATE_TEST_SUITE_P(, Selections, testing::Values(Precision::kF32, Precision::kF64));

}  // namespace
}  // namespace srjit
