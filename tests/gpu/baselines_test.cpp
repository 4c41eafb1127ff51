// Predictions of the benchmarks' baselines are within the error bound of the reference.
#include <algorithm>
#include <string>

#include "tests/gpu/machine.h"
#include "tools/bench/designs/baseline.h"
#include "tools/bench/designs/code.h"

namespace srjit {
namespace {

class Baselines : public Gpu, public testing::WithParamInterface<BaselineInfo> {};

TEST_P(Baselines, KeepTheErrorBoundOfTheReference) {
  const std::string device = engineOf({Precision::kF32, Math::kFast}).options().device;
  const std::string name = GetParam().name;
  if (device == "cpu" && name != "cpu-switch") GTEST_SKIP() << "needs a GPU";
  if (name == "nvrtc" && !hasNvrtc()) GTEST_SKIP() << "NVRTC was not found";
  GeneratorOptions generator = generatorOf(51, 30);
  generator.special_probability = 0;
  generator.ops.clear();
  for (const BaselineOp& row : allBaselineOps()) generator.ops.push_back(row.op);
  const Workload w = Workload::random(generator, 64, 10861, Spread::kTame, Precision::kF32);
  BenchData data;
  const unsigned ordinal = device == "cpu" ? 0 : static_cast<unsigned>(std::stoul(device.substr(device.find(':') + 1)));
  for (const auto& column : w.columns) data.columns.emplace_back(column.begin(), column.end());
  data.target.assign(w.target.begin(), w.target.end());
  try {
    const std::unique_ptr<Baseline> baseline = GetParam().make(data, ordinal);
    const BaselineAgreement agreement = checkBaseline(*baseline, w.expressions, data, w.parameters, 1, 64, 200);
    EXPECT_GT(agreement.promised, agreement.compared / 4);
    EXPECT_GT(agreement.sums, 10U);
    EXPECT_GT(baseline->kernelSeconds(), 0);
  } catch (const BenchFailure& failure) {
    FAIL() << failure.error.message;
  }
}

std::string nameOfBaseline(const testing::TestParamInfo<BaselineInfo>& baseline) {
  std::string name = baseline.param.name;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(All, Baselines, testing::ValuesIn(allBaselines().begin(), allBaselines().end()),
                         nameOfBaseline);

}  // namespace
}  // namespace srjit
