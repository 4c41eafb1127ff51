// LLVM's PTX of every operator whose bits are the same everywhere, instruction by instruction.
#include <array>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "compiler/nvptx/kernels.h"
#include "compiler/nvptx/options.h"
#include "ir/ops.h"
#include "ir/rows.h"
#include "tests/generators/data.h"
#include "tests/generators/population.h"
#include "tests/gpu_model/kernels.h"

namespace srjit {
namespace {

template <class T>
class PtxOf : public testing::Test {};
using PtxNumbers = testing::Types<float, double>;
TYPED_TEST_SUITE(PtxOf, PtxNumbers);

constexpr std::size_t kPtxRows = 512;

/// The operator of all rows, by its PTX. The columns are its operands.
template <class T>
std::vector<T> valuesOfPtx(Op op, Math math, std::vector<T> columns) {
  Dag dag(kPrecisionOf<T>);
  std::array<NodeId, kMaxArity> operands{};
  for (int i = 0; i < arityOf(op); ++i) {
    operands[static_cast<std::size_t>(i)] = dag.variable(static_cast<std::uint32_t>(i));
  }
  dag.addRoot(dag.apply(op, std::span(operands).first(static_cast<std::size_t>(arityOf(op)))));
  const DeviceOptions options{.precision = kPrecisionOf<T>, .math = math, .loss = {}};
  const std::string ptx = rowsPtx({&dag, 1}, options).value();
  const ModelImage image = readModel(ptx.c_str()).value();
  std::vector<T> out(kPtxRows);
  std::vector<std::uint32_t> outputs = {0};
  HostMemory memory;
  const ModelLaunch launch{
      .grid = {static_cast<unsigned>(kPtxRows / (kBlockThreads * options.rows_per_thread)), 1, 1},
      .block = {kBlockThreads, 1, 1},
      .arguments = {memory.add(columns), kPtxRows, 1, kPtxRows, 0, memory.add(outputs), memory.add(out), kPtxRows}};
  image.kernels.at(0)->run(launch, memory);
  return out;
}

TYPED_TEST(PtxOf, HasTheBitsOfTheRows) {
  using T = TypeParam;
  Random random(77);
  std::size_t tested = 0;
  for (const Op op : allOperators()) {
    std::vector<T> columns;
    for (std::size_t i = 0; i < kMaxArity * kPtxRows; ++i) {
      columns.push_back(static_cast<T>(randomValue(random, Spread::kSpecial, kPrecisionOf<T>)));
    }
    const std::vector<T> values = valuesOfPtx(op, Math::kPrecise, columns);
    for (std::size_t r = 0; r < kPtxRows; ++r) {
      const T x = columns[r], y = columns[kPtxRows + r], z = columns[2 * kPtxRows + r];
      const T expected = applyRow<T>(op, x, y, z);
      ASSERT_TRUE(sameBits(values[r], expected))
          << infoOf(op).name << "(" << x << ", " << y << ", " << z << ") = " << values[r] << ", not " << expected;
    }
    ++tested;
  }
  EXPECT_GE(tested, 45U);
}

TYPED_TEST(PtxOf, HasTheBitsOfRemaindersOfAnyNumbers) {
  using T = TypeParam;
  Random random(78);
  for (const Math math : kMathModes) {
    std::vector<T> columns = remainderOperands<T>(random, kPtxRows);
    columns.resize(kMaxArity * kPtxRows);
    const std::vector<T> values = valuesOfPtx(Op::kMod, math, columns);
    for (std::size_t r = 0; r < kPtxRows; ++r) {
      const T x = columns[r], y = columns[kPtxRows + r];
      ASSERT_TRUE(sameBits(values[r], applyRow<T>(Op::kMod, x, y, T(0)))) << x << ", " << y << ": " << values[r];
    }
  }
}

}  // namespace
}  // namespace srjit
