// Rows, samples and other weights of data on the device: the bits of an upload of the same numbers.
#include "tests/generators/selections.h"

#include <algorithm>

#include "tests/gpu/adopted.h"

namespace srjit {
namespace {

class GpuSelections : public GpuInMode {
 protected:
  Workload workload(std::size_t rows) const {
    Workload w =
        withShares(Workload::random(generatorOf(61, 20, exactOps()), 20, rows, Spread::kSpecial, mode().precision));
    w.weights = otherWeights(rows);
    return w;
  }
  /// Selections of `data`, which hold the numbers of `w`.
  static void check(const Engine& engine, const Dataset& data, const Workload& w) {
    for (const RowRun& range : {RowRun{0, w.rows()}, RowRun{77, w.rows() - 99}, RowRun{129, 1}}) {
      expectSameResults(engine, engine.rows(data, range.first, range.count).value(),
                        engine.upload(rowsOf(w, {range}).view()).value(), w);
    }
    const std::size_t groups = data.rowGroups() / 2;
    expectSameResults(engine, engine.sample(data, groups, 9).value(),
                      engine.upload(rowsOf(w, sampleGroups(w.rows(), groups, 9)).view()).value(), w, Tier::kCompile);
    Workload heavy = w;
    for (double& weight : heavy.weights) weight += 0.5;
    expectSameResults(engine, engine.withWeights(data, heavy.weights).value(), engine.upload(heavy.view()).value(), w);
  }
};

TEST_P(GpuSelections, OfUploadedDataEqualUploads) {
  const Workload w = workload(20'001);
  for (const Memory memory : {Memory::kPlenty, Memory::kStreamed}) {
    const Engine engine = this->engine(memory);
    check(engine, engine.upload(w.view()).value(), w);
  }
}

TEST_P(GpuSelections, OfAdoptedDataEqualUploads) {
  const Engine engine = this->engine();
  if (engine.options().device == "cpu") GTEST_SKIP() << "the processor has no device memory";
  constexpr std::size_t kRows = 5000;
  const Workload w = workload(kRows);
  std::vector<std::vector<double>> backwards = w.columns;
  for (std::vector<double>& column : backwards) std::ranges::reverse(column);
  ForeignMemory memory;
  const auto put = [&](const std::vector<double>& column) {
    return memory.put({&column, 1}, {.offset = 0, .row_stride = 1, .column_stride = kRows}, mode().precision);
  };
  DeviceMatrix turned = memory.put(backwards, Layout::contiguous(kRows), mode().precision);
  turned.pointer += (kRows - 1) * static_cast<std::uint64_t>(turned.row_stride);
  turned.row_stride = -turned.row_stride;
  for (const DeviceMatrix& columns :
       {memory.put(w.columns, Layout::contiguous(kRows), mode().precision),
        memory.put(w.columns, Layout::rowMajor(w.columns.size()), mode().precision),
        memory.put(w.columns, {.offset = 3, .row_stride = 7, .column_stride = 40'000}, mode().precision), turned}) {
    const Dataset adopted =
        engine.adopt({.columns = columns, .target = put(w.target), .weights = put(w.weights)}).value();
    check(engine, adopted, w);
    Workload heavy = w;
    for (double& weight : heavy.weights) weight += 0.5;
    expectSameResults(engine, engine.withWeights(adopted, put(heavy.weights)).value(),
                      engine.upload(heavy.view()).value(), w);
  }
}

INSTANTIATE_TEST_SUITE_P(Modes, GpuSelections,
                         testing::Values(Mode{Precision::kF32, Math::kPrecise}, Mode{Precision::kF64, Math::kStrict}),
                         modeName);

}  // namespace
}  // namespace srjit
