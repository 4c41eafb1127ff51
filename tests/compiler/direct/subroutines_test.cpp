// Long operators as subroutines of their group: the same bits as inlined code, fewer instructions, no hazard.
#include <algorithm>
#include <array>
#include <optional>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "compiler/direct/subroutines.h"
#include "compiler/sass/cubin.h"
#include "compiler/target/architecture.h"
#include "ir/ops.h"
#include "tests/compiler/direct/emitted.h"
#include "tests/compiler/direct/run.h"
#include "tests/generators/graphs.h"

namespace srjit {
namespace {

constexpr std::size_t kColumns = 5;

DirectOptions withSubroutines(Math math, unsigned architecture = kDefaultArchitecture) {
  return {.architecture = architecture, .math = math, .window = 1, .subroutines = true};
}

Dag populationGraph(std::size_t count, Math math, std::uint64_t seed, std::vector<Op> ops = {}) {
  GeneratorOptions options;
  options.seed = seed;
  options.min_nodes = 1;
  options.max_nodes = 30;
  options.variables = kColumns;
  options.parameters = 2;
  options.parameter_probability = 0.2;
  options.ops = std::move(ops);
  const auto batch = ExpressionGenerator(options).batch(count);
  return Pipeline::standard(math).run(Dag::fromExpressions(batch, Precision::kF32), {math});
}

std::size_t callsOf(const DirectImage& image, unsigned architecture) { return Emitted(image, architecture).calls; }

void expectRowsOfCalls(const Dag& dag, const DirectOptions& options, std::size_t rows, std::size_t least_calls) {
  auto data = DirectData<float>::random(rows, kColumns, Spread::kSpecial, rows);
  const Made made = make(dag, options);
  EXPECT_TRUE(made.part.refused.empty());
  EXPECT_GE(callsOf(made.image, options.architecture), least_calls);
  const std::size_t count = dag.roots().size();
  const auto out = runDirect(dag, made.part, made.image, options, data, {.row_blocks = 1, .warps = 2});
  const auto values = expected(dag, data);
  for (std::size_t root = 0; root < count; ++root) {
    for (std::size_t r = 0; r < rows; ++r) {
      const float value = out.results[(root + 3) % count * rows + r];
      ASSERT_TRUE(sameBits(value, values[root][r]))
          << textOf(dag, root) << " row " << r << ": " << value << ", not " << values[root][r];
    }
  }
}

TEST(Subroutines, HaveTheBitsOfTheRows) {
  for (const unsigned architecture : directArchitectures()) {
    for (const Math math : {Math::kStrict, Math::kPrecise}) {
      expectRowsOfCalls(populationGraph(100, math, architecture), withSubroutines(math, architecture), 65, 200);
    }
  }
}

// An argument with a sign or a magnitude, a literal, a column, a parameter, and the result of another subroutine.
TEST(Subroutines, TakeEveryKindOfOperand) {
  Dag dag(Precision::kF32);
  for (const Op op : allOperators()) {
    const NodeId x = dag.variable(0), y = dag.apply(Op::kLog, {dag.variable(1)}), z = dag.constant(0.5);
    const NodeId magnitude = dag.apply(Op::kAbs, {x});
    for (const NodeId first : {x, y, z, dag.apply(Op::kNeg, {x}), magnitude, dag.apply(Op::kNeg, {magnitude})}) {
      const std::array operands = {first, dag.apply(Op::kNeg, {y}), x};
      dag.addRoot(dag.apply(op, std::span(operands).first(static_cast<std::size_t>(arityOf(op)))));
    }
  }
  expectRowsOfCalls(dag, withSubroutines(Math::kStrict), 33, 100);
}

// None needs more registers than subroutines have; then it would be inlined.
TEST(Subroutines, AreAllLongOperators) {
  std::size_t called = 0;
  for (const Math math : kMathModes) {
    const DirectOptions options = withSubroutines(math);
    const direct::Subroutines subroutines(options);
    for (const Op op : allOperators()) {
      Dag dag(Precision::kF32);
      const std::array operands = {dag.variable(0), dag.variable(1), dag.variable(2)};
      dag.addRoot(dag.apply(op, std::span(operands).first(static_cast<std::size_t>(arityOf(op)))));
      EXPECT_EQ(callsOf(make(dag, options).image, options.architecture), subroutines.has(op) ? 1 : 0)
          << infoOf(op).name << ", " << nameOf(math);
      called += subroutines.has(op) ? 1 : 0;
    }
  }
  EXPECT_GT(called, 60U);
}

TEST(Subroutines, AreWrittenOncePerGroup) {
  const auto lengthOf = [](std::size_t logarithms, bool subroutines) {
    Dag dag(Precision::kF32);
    NodeId sum = dag.variable(0);
    for (std::uint32_t i = 0; i < logarithms; ++i) {
      sum = dag.apply(Op::kAdd, {sum, dag.apply(Op::kLog, {dag.variable(i % kColumns)})});
      sum = dag.apply(Op::kMul, {sum, sum});
    }
    dag.addRoot(sum);
    DirectOptions options = withSubroutines(Math::kPrecise);
    options.subroutines = subroutines;
    return make(dag, options).part.words.size();
  };
  const std::size_t logarithm = (lengthOf(kColumns, false) - lengthOf(1, false)) / (kColumns - 1);
  const std::size_t call = (lengthOf(kColumns, true) - lengthOf(1, true)) / (kColumns - 1);
  EXPECT_GT(logarithm, 25U);
  EXPECT_LT(call, 16U);
}

// Where no operator is long, the code is what it is without subroutines: no register is put aside.
TEST(Subroutines, ChangeNothingWithoutLongOperators) {
  const std::vector<Op> arithmetic = {Op::kAdd, Op::kMul, Op::kAbs, Op::kSub};
  // In `fast` these have short forms.
  const std::vector<Op> mixed = {Op::kAdd, Op::kMul, Op::kDiv, Op::kInv, Op::kSqrt, Op::kExp, Op::kLog, Op::kPow};
  for (const auto& [math, ops] : {std::pair(Math::kPrecise, arithmetic), {Math::kFast, mixed}}) {
    DirectOptions options = withSubroutines(math);
    const Dag dag = populationGraph(64, math, 3, ops);
    const std::vector<sass::Word> called = make(dag, options).part.words;
    options.subroutines = false;
    EXPECT_EQ(called, make(dag, options).part.words);
  }
}

class SubroutineLosses : public ::testing::TestWithParam<LossSpec> {};
INSTANTIATE_TEST_SUITE_P(, SubroutineLosses,
                         ::testing::Values(LossSpec{}, LossSpec{.weighted = true}, LossSpec{.skip_invalid = true},
                                           LossSpec{.weighted = true, .skip_invalid = true}));

TEST_P(SubroutineLosses, HaveTheBitsOfInlinedCode) {
  DirectOptions options = withSubroutines(Math::kPrecise);
  options.loss = GetParam();
  const Dag dag = populationGraph(40, options.math, 5);
  const DirectGrid grid{.row_blocks = 1, .warps = 2};
  auto data = DirectData<float>::random(300, kColumns, Spread::kSpecial, 4);
  const Made called = make(dag, options);
  EXPECT_TRUE(called.part.refused.empty());
  EXPECT_GT(callsOf(called.image, options.architecture), 50U);
  const auto by_calls = runDirect(dag, called.part, called.image, options, data, grid);
  options.subroutines = false;
  const Made inlined = make(dag, options);
  const auto expected = runDirect(dag, inlined.part, inlined.image, options, data, grid);
  const auto expectSame = [](const std::vector<float>& a, const std::vector<float>& b) {
    ASSERT_EQ(a.size(), b.size());
    for (std::size_t i = 0; i < a.size(); ++i) ASSERT_TRUE(sameBits(a[i], b[i])) << i << ": " << a[i] << ", " << b[i];
  };
  expectSame(by_calls.results, expected.results);
  expectSame(by_calls.counts, expected.counts);
  expectSame(by_calls.kept_weights, expected.kept_weights);
}

class SubroutineHazards : public ::testing::TestWithParam<unsigned> {};
INSTANTIATE_TEST_SUITE_P(, SubroutineHazards,
                         ::testing::ValuesIn(directArchitectures().begin(), directArchitectures().end()));

TEST_P(SubroutineHazards, AreNone) {
  for (const auto& loss : {std::optional<LossSpec>(), std::optional(LossSpec{}),
                           std::optional(LossSpec{.weighted = true, .skip_invalid = true})}) {
    DirectOptions options = withSubroutines(Math::kPrecise, GetParam());
    options.loss = loss;
    const DirectImage image = make(populationGraph(40, options.math, GetParam()), options).image;
    const Emitted emitted(image, options.architecture);
    EXPECT_GT(emitted.calls, 50U);
    const auto found = emitted.hazards();
    EXPECT_TRUE(found.empty()) << emitted.text(found);
  }
}

TEST_P(SubroutineHazards, ReturnsAreBehindTheBranchOfTheCall) {
  const DirectOptions options = withSubroutines(Math::kPrecise, GetParam());
  const DirectImage image = make(populationGraph(20, options.math, 4), options).image;
  ASSERT_EQ(image.groups.size(), 1U);
  const Emitted emitted(image, options.architecture);
  for (std::uint32_t at = 0; at < emitted.code.size(); ++at) {
    const sass::Instruction& i = *emitted.code[at];
    if (!isCall(i)) continue;
    EXPECT_EQ(emitted.code[at + 1]->form, sass::Form::kBra);
    EXPECT_EQ(image.groups[0].code + i.immediate, (at + 2) * sizeof(sass::Word));
  }
}

// What a call does not wait for, such as a load, is read after the return without a wait.
TEST_P(SubroutineHazards, AreFoundWithoutTheWaitsOfCalls) {
  const DirectOptions options = withSubroutines(Math::kPrecise, GetParam());
  const Dag dag = populationGraph(8, options.math, 7, {Op::kLog, Op::kExp, Op::kMul});
  Emitted emitted(make(dag, options).image, options.architecture);
  ASSERT_TRUE(emitted.hazards().empty());
  std::size_t made = 0;
  for (auto& instruction : emitted.code) {
    if (!isCall(*instruction) || instruction->control.wait_mask == 0) continue;
    const std::uint8_t before = std::exchange(instruction->control.wait_mask, std::uint8_t{0});
    EXPECT_FALSE(emitted.hazards(1).empty()) << sass::print(*instruction, true);
    instruction->control.wait_mask = before;
    ++made;
  }
  EXPECT_GE(made, 2U);
}

TEST(Subroutines, NeedSinglePrecisionAllRegistersAndSourceOrder) {
  const DirectOptions good = withSubroutines(Math::kPrecise);
  EXPECT_TRUE(DirectEmitter::create(good));
  DirectOptions bad = good;
  bad.precision = Precision::kF64;
  EXPECT_FALSE(DirectEmitter::create(bad));
  bad = good;
  bad.registers = 56;
  EXPECT_FALSE(DirectEmitter::create(bad));
  bad = good;
  bad.window = 8;
  EXPECT_FALSE(DirectEmitter::create(bad));
}

}  // namespace
}  // namespace srjit
