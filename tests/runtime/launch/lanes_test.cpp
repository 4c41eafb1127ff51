// Lanes: the programs that they write are those of the host's encoder, whatever the order of the tokens and of the
// blocks, and whatever the arrays hold.
#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compiler/interpreter/handler_table.h"
#include "compiler/interpreter/kernel.h"
#include "compiler/interpreter/lanes/arguments.h"
#include "ir/numbers/random.h"
#include "tests/generators/graphs.h"
#include "tests/generators/token_arrays.h"
#include "tests/gpu_model/lanes/models.h"
#include "tests/gpu_model/programs.h"

namespace srjit {
namespace {

constexpr std::uint32_t kTestColumns = 7;
constexpr double kTestParameters[] = {0.75, -1.25, 2.5};

HandlerTable tableOf(Precision precision, Math math, OpFamily family = OpFamily::kAll) {
  const std::span<const Op> ops = opsOf(family);
  return HandlerTable({precision, math, {ops.begin(), ops.end()}, 8});
}

/// A population on the host in the place of one on a device, and what a launch writes.
struct Launch {
  Launch(const HandlerTable& table, std::uint32_t most_tokens, Notation notation = Notation::kPostfix)
      : table_of(table) {
    arguments.most_tokens = most_tokens;
    arguments.lanes = kFewLanes;
    arguments.columns = kTestColumns;
    arguments.values_type = Precision::kF64;
    arguments.notation = notation;
    arguments.precision = table.spec().precision;
    arguments.math = table.spec().math;
    arguments.handlers = table.numbers();
    for (const Op op : table.spec().ops) allowed[static_cast<std::size_t>(op)] = 1;
  }

  /// In the order of the launch's notation.
  void add(const Expression& expression) {
    std::vector<Token> tokens(expression.tokens().begin(), expression.tokens().end());
    if (arguments.notation == Notation::kPrefix) tokens = prefixOf(expression);
    for (const Token& token : tokens) {
      codes.push_back(codeOf(token));
      values.push_back(token.kind == Token::Kind::kParameter ? kTestParameters[token.index] : token.value);
    }
    offsets.push_back(static_cast<std::int64_t>(codes.size()));
  }

  void run(bool backwards = false) {
    const std::size_t count = offsets.size() - 1;
    faults.assign(count, DeviceFault::kNone);
    programs.assign(roomForPrograms(codes.size(), count), {0xdeadbeef, 0xdeadbeef});
    program_offsets.assign(count + 1, 77);
    numbers.assign(codes.size() * 8, std::byte{});
    counts = {};
    arguments.codes = codes.data();
    arguments.values = values.empty() ? nullptr : reinterpret_cast<const std::byte*>(values.data());
    arguments.offsets = is_fixed ? nullptr : offsets.data();
    arguments.lengths = lengths.empty() ? nullptr : lengths.data();
    arguments.stride = count == 0 ? 0 : codes.size() / count;
    arguments.tokens = codes.size();
    arguments.expressions = static_cast<std::uint32_t>(count);
    arguments.is_allowed = allowed.data();
    arguments.counts = &counts;
    arguments.programs = programs.data();
    arguments.program_offsets = program_offsets.data();
    arguments.numbers = numbers.data();
    arguments.faults = faults.data();
    const unsigned groups = threadsOfBlock(arguments.most_tokens, arguments.lanes) / arguments.lanes;
    std::vector<std::uint32_t> blocks((count + groups - 1) / groups);
    std::iota(blocks.begin(), blocks.end(), 0U);
    if (backwards) std::ranges::reverse(blocks);
    encodeTrees(arguments, blocks);
  }

  double number(std::uint32_t i) const {
    return arguments.precision == Precision::kF32 ? double{reinterpret_cast<const float*>(numbers.data())[i]}
                                                  : reinterpret_cast<const double*>(numbers.data())[i];
  }
  /// By expression; empty without one.
  std::vector<std::span<const DeviceToken>> written() const {
    std::vector<std::span<const DeviceToken>> all(faults.size());
    for (std::size_t p = 0; p < faults.size(); ++p) {
      const auto of = std::span(programs).subspan(program_offsets[p], program_offsets[p + 1] - program_offsets[p]);
      if (!of.empty()) all.at(of.back().argument) = of;
    }
    return all;
  }

  const HandlerTable& table_of;
  bool is_fixed = false;  ///< whether expressions begin at multiples of a number
  std::vector<std::int32_t> codes;
  std::vector<double> values;
  std::vector<std::int64_t> offsets = {0};
  std::vector<std::int32_t> lengths;
  std::array<std::uint8_t, kMostOps> allowed{};
  TreeCounts counts{};
  std::vector<DeviceToken> programs;
  std::vector<std::uint32_t> program_offsets;
  std::vector<std::byte> numbers;
  std::vector<DeviceFault> faults;
  TreeArguments arguments{};
};

std::vector<Expression> someExpressions(std::size_t count, std::uint64_t seed, int most) {
  return ExpressionGenerator({.seed = seed,
                              .min_nodes = 1,
                              .max_nodes = most,
                              .variables = static_cast<int>(kTestColumns),
                              .parameters = 3,
                              .constant_probability = 0.3,
                              .parameter_probability = 0.15,
                              .special_probability = 0.1})
      .batch(count);
}

class LaneModes : public testing::TestWithParam<std::tuple<Precision, Math, Notation>> {};

INSTANTIATE_TEST_SUITE_P(, LaneModes,
                         testing::Combine(testing::Values(Precision::kF32, Precision::kF64),
                                          testing::Values(Math::kStrict, Math::kPrecise, Math::kFast),
                                          testing::Values(Notation::kPostfix, Notation::kPrefix)));

constexpr std::size_t kTestRows = 128;

std::vector<std::vector<double>> someColumns() {
  Random random(8);
  std::vector<std::vector<double>> columns(kTestColumns, std::vector<double>(kTestRows));
  for (std::vector<double>& column : columns) {
    for (double& value : column) value = static_cast<float>(random.between(-3.0, 3.0));
  }
  return columns;
}

/// What the interpreter predicts: by expression and row.
template <class T>
std::vector<T> predictions(Launch& launch, const std::vector<std::vector<double>>& columns) {
  const std::size_t count = launch.faults.size(), slots = kLaneSlots;
  std::vector<T> data, out(count * kTestRows);
  for (const std::vector<double>& column : columns) data.insert(data.end(), column.begin(), column.end());
  std::vector<std::uint32_t> map(kTestColumns);
  std::iota(map.begin(), map.end(), 0U);
  HostMemory memory;
  constexpr unsigned kRowsPerThread = 4;
  const InterpreterGeometry geometry = {
      .rows_per_thread = kRowsPerThread, .row_warps = 1, .programs_per_warp = 1, .window = 64};
  const std::span<const Op> ops = launch.table_of.spec().ops;
  const std::unique_ptr<KernelModel> model = makeInterpreterModel(
      HandlerTable({launch.arguments.precision, launch.arguments.math, {ops.begin(), ops.end()}, kRowsPerThread}),
      {.precision = launch.arguments.precision, .rows_per_thread = kRowsPerThread, .loss = {}}, {});
  ModelLaunch of;
  of.block = {kBlockThreads, 1, 1};
  of.grid = {static_cast<unsigned>((count + kBlockWarps - 1) / kBlockWarps), 1, 1};
  of.shared_bytes = interpreterSharedBytes(launch.arguments.precision, geometry, kTestColumns, slots, 0);
  of.arguments = {memory.add(data),
                  kTestRows,
                  1,
                  kTestRows,
                  memory.add(launch.numbers),
                  memory.add(map),
                  memory.add(launch.programs),
                  memory.add(launch.program_offsets),
                  count,
                  1,
                  1,
                  1,
                  kTestColumns,
                  slots,
                  geometry.window,
                  memory.add(out),
                  kTestRows};
  model->run(of, memory);
  return out;
}

/// That every program has the bits of its expression's tree.
template <class T>
void expectBitsOfTrees(Launch& launch, std::span<const Expression> expressions) {
  const std::vector<std::vector<double>> columns = someColumns();
  const std::vector<T> found = predictions<T>(launch, columns);
  TreeReader reader(launch.arguments.precision, launch.arguments.math);
  const Population population(expressions);
  std::vector<NodeId> places;
  for (std::size_t e = 0; e < expressions.size(); ++e) {
    ASSERT_EQ(launch.faults[e], DeviceFault::kNone);
    Dag dag(launch.arguments.precision);
    dag.addRoot(addTree(reader.read(population[e]), 0, dag, places));
    for (std::size_t r = e % 32; r < kTestRows; r += 61) {
      std::vector<T> row;
      for (const std::vector<double>& column : columns) row.push_back(static_cast<T>(column[r]));
      const std::vector<T> parameters(std::begin(kTestParameters), std::end(kTestParameters));
      const T want = evaluate<T>(dag, row, parameters)[0];
      ASSERT_TRUE(sameBits(found[e * kTestRows + r], want)) << print(expressions[e], Language::kInfix) << ", row " << r;
    }
  }
}

TEST_P(LaneModes, ProgramsHaveTheBitsOfTrees) {
  const auto [precision, math, notation] = GetParam();
  const HandlerTable table = tableOf(precision, math);
  const struct {
    int most;
    std::size_t count;
    unsigned lanes;
  } populations[] = {
      {40, 3'000, kFewLanes}, {250, 300, kFewLanes}, {250, 300, kManyLanes}, {60, 300, 2}, {60, 300, 32}};
  for (const auto& [most, count, lanes] : populations) {
    const std::vector<Expression> expressions = someExpressions(count, 5, most);
    Launch launch(table, kMostDeviceTokens, notation);
    launch.arguments.lanes = lanes;
    for (const Expression& expression : expressions) launch.add(expression);
    launch.run();
    precision == Precision::kF32 ? expectBitsOfTrees<float>(launch, expressions)
                                 : expectBitsOfTrees<double>(launch, expressions);
  }
}

TEST(Lanes, ProgramsDoNotDependOnTheOrderOfBlocksOrOnTheNumberOfLanes) {
  const HandlerTable table = tableOf(Precision::kF32, Math::kPrecise);
  Launch one(table, 64), other(table, 64);
  for (const Expression& expression : someExpressions(2'000, 6, 60)) {
    one.add(expression);
    other.add(expression);
  }
  other.arguments.lanes = kManyLanes;
  one.run();
  other.run(true);
  const auto programs = one.written(), others = other.written();
  for (std::size_t e = 0; e < programs.size(); ++e) {
    ASSERT_EQ(programs[e].size(), others[e].size());
    for (std::size_t t = 0; t < programs[e].size(); ++t) {
      const DeviceToken token = programs[e][t], same = others[e][t];
      ASSERT_EQ(token.code, same.code);
      const bool is_parameter = token.code >> DeviceToken::kArgumentShift == DeviceToken::kParameter;
      ASSERT_TRUE(is_parameter ? sameBits(one.number(token.argument), other.number(same.argument))
                               : token.argument == same.argument);
    }
  }
  EXPECT_EQ(one.counts.programs_and_tokens, other.counts.programs_and_tokens);
}

// Trees whose operators need more registers than there are, at every level.
Expression deepTree(std::span<const Op> ops, std::size_t most_tokens) {
  std::vector<std::vector<Token>> levels = {{Token::variable(0), Token::operation(Op::kSin)}};
  for (std::size_t i = 0;; ++i) {
    const Op op = ops[i % ops.size()];
    std::vector<Token> next;
    for (int k = 0; k < arityOf(op); ++k) {
      // The last operand may be smaller, so that a statement keeps several values.
      const std::vector<Token>& operand = levels[levels.size() - 1 - (k > 0 && levels.size() > 1 && i % 3 == 0)];
      next.insert(next.end(), operand.begin(), operand.end());
    }
    next.push_back(Token::operation(op));
    if (next.size() > most_tokens) return Expression::create(levels.back()).value();
    levels.push_back(std::move(next));
  }
}

TEST(Lanes, HaveSlotsForTheDeepestTrees) {
  const HandlerTable table = tableOf(Precision::kF64, Math::kPrecise);
  std::vector<Expression> expressions;
  for (const std::vector<Op>& ops : {std::vector{Op::kDiv},
                                     {Op::kFma},
                                     {Op::kFma, Op::kDiv},
                                     {Op::kDiv, Op::kFma},
                                     {Op::kDiv, Op::kDiv, Op::kFma},
                                     {Op::kSub, Op::kFma, Op::kFma}}) {
    for (const std::size_t most : {60u, 100u, 180u, 256u}) expressions.push_back(deepTree(ops, most));
  }
  // Combs of deep trees: one operand of each needs all registers.
  const Expression deep = deepTree(std::array{Op::kDiv}, 50);
  for (const bool first : {false, true}) {
    std::vector<Token> comb(deep.tokens().begin(), deep.tokens().end());
    while (comb.size() + deep.size() + 1 <= kMostDeviceTokens) {
      comb.insert(first ? comb.begin() : comb.end(), deep.tokens().begin(), deep.tokens().end());
      comb.push_back(Token::operation(Op::kSub));
    }
    expressions.push_back(Expression::create(comb).value());
  }
  // The operands of "if" have one order, so the last one needs registers beside the others.
  const Token x = Token::variable(0), negation = Token::operation(Op::kNeg), choice = Token::operation(Op::kIf);
  const std::vector<Token> small = {x, negation}, three = {x, negation, x, negation, x, negation, choice};
  for (const bool first : {false, true}) {
    std::vector<Token> comb = small;
    while (comb.size() + small.size() + three.size() + 1 <= kMostDeviceTokens) {
      std::vector<Token> next = first ? three : comb;
      next.insert(next.end(), small.begin(), small.end());
      const std::vector<Token>& last = first ? comb : three;
      next.insert(next.end(), last.begin(), last.end());
      next.push_back(choice);
      comb = std::move(next);
    }
    expressions.push_back(Expression::create(comb).value());
  }
  for (const Notation notation : {Notation::kPostfix, Notation::kPrefix}) {
    Launch launch(table, kMostDeviceTokens, notation);
    for (const Expression& expression : expressions) launch.add(expression);
    launch.run();
    expectBitsOfTrees<double>(launch, expressions);
    const int store = table.find(Handler::Kind::kStoreSlot, 1);
    EXPECT_GT(
        std::ranges::count_if(launch.programs,
                              [&](const DeviceToken& token) { return static_cast<int>(token.code & 0xfff) == store; }),
        20);
  }
}

DeviceFault faultOf(const std::vector<std::int32_t>& codes, Notation notation, bool is_fixed = false,
                    OpFamily family = OpFamily::kArithmetic, bool has_values = true) {
  const HandlerTable table = tableOf(Precision::kF32, Math::kPrecise, family);
  Launch launch(table, 8, notation);
  launch.codes = codes;
  if (has_values) launch.values.assign(codes.size(), 1.5);
  launch.offsets.push_back(static_cast<std::int64_t>(codes.size()));
  launch.is_fixed = is_fixed;
  launch.run();
  EXPECT_EQ(launch.written()[0].empty(), launch.faults[0] != DeviceFault::kNone);
  return launch.faults[0];
}

TEST(Lanes, SayWhatIsWrong) {
  const std::int32_t x = variableCode(0), c = kConstantCode, add = codeOf(Op::kAdd), sin = codeOf(Op::kSin);
  constexpr Notation kPost = Notation::kPostfix, kPre = Notation::kPrefix;
  EXPECT_EQ(faultOf({x, c, add}, kPost), DeviceFault::kNone);
  EXPECT_EQ(faultOf({add, x, c}, kPre), DeviceFault::kNone);
  EXPECT_EQ(faultOf({add, x, c, x, 12345}, kPre, true), DeviceFault::kNone) << "what follows is no part of it";
  EXPECT_EQ(faultOf({}, kPost), DeviceFault::kLength);
  EXPECT_EQ(faultOf({x, x, add, x, add, x, add, x, add}, kPost), DeviceFault::kLength);
  EXPECT_EQ(faultOf({add, x, add, x, add, x, add, x, x}, kPre, true), DeviceFault::kLength);
  EXPECT_EQ(faultOf({x, 12345, add}, kPost), DeviceFault::kCode);
  EXPECT_EQ(faultOf({x, sin}, kPost), DeviceFault::kOperator);
  EXPECT_EQ(faultOf({x, sin}, kPost, false, OpFamily::kCommon), DeviceFault::kNone);
  EXPECT_EQ(faultOf({variableCode(kTestColumns)}, kPost), DeviceFault::kVariable);
  EXPECT_EQ(faultOf({variableCode(kTestColumns - 1)}, kPost), DeviceFault::kNone);
  EXPECT_EQ(faultOf({x, parameterCode(0), add}, kPost), DeviceFault::kNone);
  for (const std::int32_t number : {c, parameterCode(0)}) {
    EXPECT_EQ(faultOf({number}, kPost, false, OpFamily::kArithmetic, false), DeviceFault::kCode) << "without values";
  }
  EXPECT_EQ(faultOf({x, add}, kPost), DeviceFault::kOperands);
  EXPECT_EQ(faultOf({add, x}, kPre), DeviceFault::kOperands);
  EXPECT_EQ(faultOf({add, x}, kPre, true), DeviceFault::kOperands);
  EXPECT_EQ(faultOf({x, x}, kPost), DeviceFault::kRest);
  EXPECT_EQ(faultOf({x, x}, kPre), DeviceFault::kRest);
}

// Whatever the arrays hold: sanitizers see what is read and written, and every program is one.
TEST(Lanes, ReadAndWriteNothingOutsideOfTheArrays) {
  const HandlerTable table = tableOf(Precision::kF32, Math::kPrecise);
  Random random(77);
  for (int turn = 0; turn < 300; ++turn) {
    Launch launch(table, 1 + static_cast<std::uint32_t>(random.below(40)),
                  random.chance(0.5) ? Notation::kPostfix : Notation::kPrefix);
    launch.offsets.clear();
    for (std::size_t i = random.below(300); i-- > 0;) {
      const auto any = static_cast<std::int32_t>(random.below(std::size_t{1} << 32));
      const auto likely = static_cast<std::int32_t>(random.below(60)) - 8;
      launch.codes.push_back(random.chance(0.02) ? any : likely);
      launch.values.push_back(random.between(-2.0, 2.0));
    }
    for (std::size_t i = 1 + random.below(80); i-- > 0;) {
      const auto near = static_cast<std::int64_t>(random.below(launch.codes.size() + 2));
      launch.offsets.push_back(random.chance(0.02) ? INT64_MIN + near : random.chance(0.02) ? INT64_MAX - near : near);
    }
    if (random.chance(0.5)) std::ranges::sort(launch.offsets);
    launch.arguments.lanes = 1U << random.below(6);
    launch.is_fixed = random.chance(0.3);
    for (std::size_t e = 1; e < launch.offsets.size() && turn % 3 == 0; ++e) {
      launch.lengths.push_back(static_cast<std::int32_t>(random.below(50)) - 3);
    }
    launch.run();
    const auto programs = launch.written();
    for (std::size_t e = 0; e < programs.size(); ++e) {
      ASSERT_EQ(programs[e].empty(), launch.faults[e] != DeviceFault::kNone);
    }
    predictions<float>(launch, someColumns());
  }
}

TEST(Lanes, OfNoExpressionsWriteNoProgram) {
  const HandlerTable table = tableOf(Precision::kF32, Math::kPrecise);
  Launch launch(table, 8);
  launch.run();
  EXPECT_EQ(launch.program_offsets, std::vector<std::uint32_t>{0});
}

}  // namespace
}  // namespace srjit
