// Searches on the model of a GPU: the formulas of the processor.
#include <gmock/gmock.h>

#include <string>

#include <fmt/format.h>

#include "ir/numbers/random.h"
#include "ir/text.h"
#include "tests/gpu_model/device_engine.h"
#include "tools/search/evolution.h"
#include "tools/search/rows.h"

namespace srjit::search {
namespace {

RowSet rowsOfRatio() {
  RowSet rows;
  rows.columns.resize(2);
  Random random(4);
  for (int r = 0; r < 300; ++r) {
    for (std::vector<double>& column : rows.columns) column.push_back(random.between(1.0, 3.0));
    const double x = rows.columns[0].back(), y = rows.columns[1].back();
    rows.target.push_back(x / (2.5 + y * y) + 1 + 0.01 * random.between(-1.0, 1.0));  // so that no search ends early
  }
  return rows;
}

SearchOptions arithmeticOptions() {
  SearchOptions options;
  options.grammar.operators = {{Op::kAdd}, {Op::kSub}, {Op::kMul}, {Op::kDiv}};
  options.engine = {.device = "cpu", .math = Math::kStrict};
  options.seconds = 0;
  options.generations = 6;
  options.islands = 4;
  options.island = {.population = 24, .offspring = 40, .patience = 4};
  options.rows = 200;
  return options;
}

std::string formulasOf(const DataView& data, const SearchOptions& options) {
  const Result<SearchResult> result = search(data, options);
  if (!result) return result.error().message;
  std::string text = fmt::format("{} trees, {} fits", result->state.candidates, result->state.fits);
  for (const Formula& formula : result->state.front.formulas()) {
    text += fmt::format("\n{} {:a}", print(formula.expression, Language::kPostfix), formula.loss);
  }
  return text;
}

TEST(SearchDevicesSlow, FindTheFormulasOfTheProcessor) {
  const RowSet rows = rowsOfRatio();
  SearchOptions options = arithmeticOptions();
  const std::string expected = formulasOf(rows.view(), options);
  EXPECT_THAT(expected, testing::HasSubstr("\n"));
  for (const std::size_t devices : {1u, 2u, 3u, 8u}) {
    FakeOptions machine_options{.devices = {}};
    for (std::size_t i = 0; i < devices; ++i) machine_options.devices.push_back({});
    FakeMachine machine(machine_options);
    options.selecting_engine = machine.engine({.device = "cuda:all", .math = Math::kStrict});
    EXPECT_EQ(formulasOf(rows.view(), options), expected) << devices;
    EXPECT_GT(machine.driver.count("cuLaunchKernel"), 0u);
    options.selecting_engine.reset();  // before its machine
  }
}

TEST(SearchDevicesSlow, GoOnWithoutADeviceThatIsLost) {
  const RowSet rows = rowsOfRatio();
  SearchOptions options = arithmeticOptions();
  const std::string expected = formulasOf(rows.view(), options);
  FakeMachine machine(FakeOptions{.devices = {{}, {}}});
  options.selecting_engine = machine.engine({.device = "cuda:all", .math = Math::kStrict});
  options.progress = [&](const SearchState& progress) {
    if (progress.generations == 2) machine.driver.loseDevice(CUDA_ERROR_ILLEGAL_ADDRESS, 1);
  };
  EXPECT_EQ(formulasOf(rows.view(), options), expected);
  EXPECT_THAT(options.selecting_engine->notices(), testing::SizeIs(1));
  options.selecting_engine.reset();  // before its machine
}

}  // namespace
}  // namespace srjit::search
