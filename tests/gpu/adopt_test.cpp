// Adopted data, which are in GPU memory.
#include "tests/gpu/adopted.h"

namespace srjit {
namespace {

class Adopt : public GpuInMode {
 protected:
  void SetUp() override {
    GpuInMode::SetUp();
    if (!IsSkipped() && engine().options().device == "cpu") GTEST_SKIP() << "the processor has no device memory";
  }

  // Results of adopted columns equal those of uploaded ones.
  void check(std::size_t rows, const Layout& layout, bool weighted) {
    const Engine engine = this->engine();
    Workload w = Workload::random(generatorOf(41, 30, exactOps()), 40, rows, Spread::kSpecial, mode().precision);
    if (weighted) w.weights = quarterWeights(rows);
    ForeignMemory memory;
    DeviceDataView view{.columns = memory.put(w.columns, layout, mode().precision)};
    const Layout single{layout.offset, layout.row_stride, 1};
    view.target = memory.put({&w.target, 1}, single, mode().precision);
    if (weighted) view.weights = memory.put({&w.weights, 1}, single, mode().precision);
    const Result<Dataset> adopted = engine.adopt(view);
    ASSERT_TRUE(adopted.ok()) << adopted.error().message;
    EXPECT_EQ(adopted->rows(), rows);
    EXPECT_EQ(adopted->columns(), w.columns.size());
    const Dataset uploaded = engine.upload(w.view()).value();
    const std::vector<LossOptions> losses = {kPlain, {LossKind::kMse, NanPolicy::kSkip}};
    for (const Tier tier : {Tier::kInterpret, Tier::kCompile}) {
      expectSame(resultsOf({engine, tier}, w, *adopted, losses), resultsOf({engine, tier}, w, uploaded, losses), w,
                 "adopted and uploaded");
    }
  }
};

TEST_P(Adopt, ContiguousColumnsEqualUploadedOnes) {
  for (const std::size_t rows : {1, 128, 361, 4096, 10860}) check(rows, Layout::contiguous(rows), rows % 2 == 0);
}

TEST_P(Adopt, RowMajorMatricesEqualUploadedColumns) {
  for (const std::size_t rows : {3, 129, 4097}) check(rows, Layout::rowMajor(5), rows % 2 == 1);
}

TEST_P(Adopt, MisalignedColumnsEqualUploadedOnes) {
  check(1000, {.offset = 1, .row_stride = 1, .column_stride = 1000}, true);
  check(1000, {.offset = 0, .row_stride = 1, .column_stride = 1001}, false);
  check(1000, {.offset = 3, .row_stride = 7, .column_stride = 7777}, true);
}

TEST_P(Adopt, RejectsStridesTypesAndMemoryItCannotRead) {
  const Engine engine = this->engine();
  ForeignMemory memory;
  const std::vector<std::vector<double>> columns(2, std::vector<double>(10, 1.0));
  const DeviceMatrix good = memory.put(columns, Layout::contiguous(10), mode().precision);
  DeviceMatrix odd = good;
  odd.row_stride += 1;
  EXPECT_EQ(engine.adopt({.columns = odd}).error().code, Errc::kInvalid);
  DeviceMatrix other = good;
  other.type = mode().precision == Precision::kF32 ? Precision::kF64 : Precision::kF32;
  EXPECT_EQ(engine.adopt({.columns = other}).error().code, Errc::kInvalid);
  DeviceMatrix on_host = good;
  on_host.pointer = reinterpret_cast<std::uint64_t>(columns[0].data());
  EXPECT_EQ(engine.adopt({.columns = on_host}).error().code, Errc::kUnsupported);
  EXPECT_TRUE(engine.adopt({.columns = good}).ok());
}

INSTANTIATE_TEST_SUITE_P(Modes, Adopt,
                         testing::Values(Mode{Precision::kF32, Math::kPrecise}, Mode{Precision::kF64, Math::kStrict}),
                         modeName);

}  // namespace
}  // namespace srjit
