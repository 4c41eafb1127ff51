// Rows, samples and other weights of data on every machine: the results of an upload of the same numbers.
#include <optional>

#include <gmock/gmock.h>

#include "tests/generators/selections.h"
#include "tests/runtime/machines/fixture.h"

namespace srjit {
namespace {

class MachineSelections : public Machines {
 protected:
  Workload selectable(std::size_t rows, bool weighted) const {
    Workload w = withShares(workload(rows, 6, rows, false));
    if (weighted) w.weights = otherWeights(rows);
    return w;
  }
  /// Data of the workload, whose columns have names.
  Dataset upload(const Workload& w) const {
    DataView view = w.view();
    view.names = ColumnNames{"a", "b", "c", "d", "e"};
    return engine_.upload(view).value();
  }
  void expectSame(const Dataset& got, const Workload& selected) const {
    expectSameResults(engine_, got, upload(selected), selected);
  }

  const Engine engine_ = machine_.engine();
};

INSTANTIATE_TEST_SUITE_P(InSingle, MachineSelections, inSingle(kOneGpu, kThreeGpus), nameOfMachine);
INSTANTIATE_TEST_SUITE_P(InDouble, MachineSelections, inDouble(kProcessor, kOneGpu), nameOfMachine);

TEST_P(MachineSelections, RowsAreThoseOfAnUpload) {
  constexpr std::size_t kRows = 700;
  for (const bool weighted : {false, true}) {
    const Workload w = selectable(kRows, weighted);
    std::optional<Dataset> data = upload(w);
    for (const RowRun& range : someRanges(kRows)) {
      SCOPED_TRACE(testing::Message() << range.first << " + " << range.count);
      if (weighted && range.count == 1 && w.weights[range.first] == 0) continue;
      expectSame(engine_.rows(*data, range.first, range.count).value(), rowsOf(w, {range}));
    }
    const Dataset inner = engine_.rows(*data, 33, 555).value();
    data.reset();
    expectSame(engine_.rows(inner, 67, 301).value(), rowsOf(w, {{100, 301}}));
  }
}

TEST_P(MachineSelections, SamplesAreThoseOfAnUpload) {
  constexpr std::size_t kRows = 1000;  // 8 groups, of which the last has 104 rows
  for (const bool weighted : {false, true}) {
    const Workload w = selectable(kRows, weighted);
    const Dataset data = upload(w);
    ASSERT_EQ(data.rowGroups(), 8U);
    for (const std::size_t groups : {1U, 3U, 8U}) {
      for (std::uint64_t seed = 0; seed < 3; ++seed) {
        expectSame(engine_.sample(data, groups, seed).value(), rowsOf(w, sampleGroups(kRows, groups, seed)));
      }
    }
  }
}

TEST_P(MachineSelections, WeightsAreThoseOfAnUpload) {
  for (const std::size_t rows : {1U, 301U}) {
    for (const bool weighted : {false, true}) {
      Workload w = selectable(rows, weighted);
      const Dataset data = upload(w);
      w.weights = otherWeights(rows);
      for (double& weight : w.weights) weight += 0.5;
      const Dataset other = engine_.withWeights(data, w.weights).value();
      expectSame(other, w);
      const std::vector<float> single(w.weights.begin(), w.weights.end());
      w.weights.assign(single.begin(), single.end());
      expectSame(engine_.withWeights(other, single).value(), w);
    }
  }
}

TEST_P(MachineSelections, DataWithoutATargetKeepTheirWeights) {
  Workload w = selectable(300, true);
  w.target.clear();
  const Dataset data = upload(w), some = engine_.rows(data, 13, 206).value(), expected = upload(rowsOf(w, {{13, 206}}));
  expectSameDescription(some, expected);
  const Program program = engine_.compile(w.expressions, {.tier = Tier::kInterpret});
  expectSameBits(predict(engine_, program, some, w.parameters), predict(engine_, program, expected, w.parameters), 206,
                 "predictions");
  EXPECT_EQ(engine_.withWeights(data, w.weights).error().message, "weights without a target");
}

TEST_P(MachineSelections, ErrorsNameWhatIsWrong) {
  Workload w = selectable(300, true);
  for (std::size_t r = 0; r < 10; ++r) w.weights[r] = 0;
  const Dataset data = upload(w);
  const auto errorOf = [](const Result<Dataset>& made) {
    if (made.ok()) return std::string("no error");
    EXPECT_EQ(made.error().code, Errc::kInvalid);
    return made.error().message;
  };
  EXPECT_EQ(errorOf(engine_.rows(data, 5, 0)), "data without rows");
  EXPECT_EQ(errorOf(engine_.rows(data, 5, 296)), "296 rows from index 5 on, of data with 300 rows");
  EXPECT_EQ(errorOf(engine_.rows(data, 301, 1)), "1 rows from index 301 on, of data with 300 rows");
  EXPECT_THAT(errorOf(engine_.rows(data, 5, SIZE_MAX)), testing::HasSubstr("of data with 300"));
  EXPECT_EQ(errorOf(engine_.rows(data, 0, 10)), "the weights of these rows are all zero");
  for (const std::size_t groups : {0U, 4U}) {
    EXPECT_EQ(errorOf(engine_.sample(data, groups, 1)),
              fmt::format("{} groups of rows of data with 3, expected at least 1 and at most all", groups));
  }
  std::vector<double> weights(300, 1.0);
  weights[7] = -2;
  EXPECT_EQ(errorOf(engine_.withWeights(data, weights)),
            "weight -2 in row 8, expected a finite number that is not negative");
  weights.assign(300, 0);
  EXPECT_EQ(errorOf(engine_.withWeights(data, weights)), "the weights are all zero");
  weights.assign(299, 1);
  EXPECT_EQ(errorOf(engine_.withWeights(data, weights)), "the weights have 299 rows, expected 300 rows");
  if (!machine_.model) {
    const DeviceMatrix matrix{.pointer = 64, .rows = 300, .columns = 1, .row_stride = 4, .type = machine_.precision};
    EXPECT_EQ(engine_.withWeights(data, matrix).error().code, Errc::kUnsupported);
  }
  const bool is_single = machine_.precision == Precision::kF32;
  for (std::vector<double>& column : w.columns) column.assign(300, 1.5);  // a number of both precisions
  const Dataset of_other = cpuEngine(is_single ? Precision::kF64 : Precision::kF32).upload(w.view()).value();
  const std::string expected =
      is_single ? "data in f64, but the engine computes in f32" : "data in f32, but the engine computes in f64";
  EXPECT_EQ(errorOf(engine_.rows(of_other, 0, 1)), expected);
  EXPECT_EQ(errorOf(engine_.sample(of_other, 1, 1)), expected);
  EXPECT_EQ(errorOf(engine_.withWeights(of_other, std::vector<double>(300, 1.0))), expected);
}

}  // namespace
}  // namespace srjit
