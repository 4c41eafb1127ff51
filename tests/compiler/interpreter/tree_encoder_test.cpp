// Programs of expressions as they are written: those of the GPU's and the CPU's interpreter compute what the tree's
// graph does, bit for bit.
#include "compiler/interpreter/tree_encoder.h"

#include <gtest/gtest.h>

#include "ir/population.h"
#include "tests/compiler/interpreter/machine.h"
#include "tests/generators/graphs.h"

namespace srjit {
namespace {

constexpr std::uint32_t kTreeColumns = 3;

/// Everything that encodes trees of a mode, in memory that is used again, so that what an expression leaves behind
/// would be seen.
class Encoders {
 public:
  Encoders(Math math, unsigned depth)
      : table_({Precision::kF64, math, allOperators(), 4, depth}),
        reader_(Precision::kF64, math),
        trees_(table_.numbers()),
        operators_(kOpCount),
        columns_(kTreeColumns) {}

  void expectSame(const Expression& expression) {
    const Population population({&expression, 1});
    const Tree tree = reader_.read(population[0]);
    Dag dag(Precision::kF64);
    dag.addRoot(addTree(tree, 0, dag, places_));
    const double wanted = evaluate<double>(dag, kRow, kParameters)[0];
    ASSERT_TRUE(sameBits(ofHost(tree), wanted)) << textOf(expression);
    EncodeOptions options;
    options.staged_columns = kTreeColumns;
    options.first_parameter = 2;
    Bytecode code;
    is_encoded = trees_.encode(tree, 0, options, {operators_, columns_}, code);
    EXPECT_EQ(code.tokens.empty(), !is_encoded);
    if (!is_encoded) return;
    std::vector<double> parameters = {1e9, 1e9};
    addValues(tree, code.parameters, parameters);
    const double got = BytecodeMachine(table_, kRow, parameters).run(code, 1)[0];
    ASSERT_TRUE(sameBits(got, wanted)) << textOf(expression) << '\n' << printBytecode(code, table_, options);
    for (const DeviceToken& token : code.tokens) {
      const Handler& handler = table_.handlers()[token.code & DeviceToken::kHandlerMask];
      const bool computes = handler.kind == Handler::Kind::kApply || handler.kind == Handler::Kind::kBody;
      ASSERT_TRUE(!computes || operators_[static_cast<std::size_t>(handler.op)] == 1);
    }
  }

  bool is_encoded = false;  ///< by the GPU's encoder, the last one

 private:
  static inline const std::vector<double> kRow = {0.75, -1.5, 3}, kParameters = {2.5, -0.125};

  static void addValues(const Tree& tree, std::span<const NodeId> leaves, std::vector<double>& values) {
    for (const NodeId leaf : leaves) {
      const TreeNode& node = tree.nodes[leaf];
      values.push_back(node.kind == Token::Kind::kConstant ? tree.values[leaf] : kParameters.at(node.index()));
    }
  }

  double ofHost(const Tree& tree) {
    HostProgram program;
    program.outputs = 1;
    std::vector<NodeId> leaves;
    program.slots = host_.encode(tree, program.instructions, leaves);
    std::vector<double> parameters;
    addValues(tree, leaves, parameters);
    return runHostProgram(program, kRow, parameters)[0];
  }

  HandlerTable table_;
  TreeReader reader_;
  TreeEncoder trees_;
  HostTreeEncoder host_;
  std::vector<std::uint8_t> operators_, columns_;
  std::vector<NodeId> places_;
};

void expectSamePrograms(Math math, std::uint64_t seed, int expressions) {
  ExpressionGenerator generator = expressionsOfAllOperators(seed, 60);
  Encoders encoders(math, 4);
  int encoded = 0;
  for (int i = 0; i < expressions; ++i) {
    encoders.expectSame(generator.next());
    encoded += encoders.is_encoded ? 1 : 0;
  }
  EXPECT_GT(encoded, expressions / 10 * 9);
}

class TreePrograms : public testing::TestWithParam<Math> {};
TEST_P(TreePrograms, ComputeTheGraph) { expectSamePrograms(GetParam(), 31, 10'000); }

// A million in all modes together.
class TreeProgramsSlow : public testing::TestWithParam<Math> {};
TEST_P(TreeProgramsSlow, ComputeTheGraphOfAnyExpression) { expectSamePrograms(GetParam(), 32, 334'000); }

constexpr auto kName = [](const auto& info) { return std::string(nameOf(info.param)); };
INSTANTIATE_TEST_SUITE_P(Modes, TreePrograms, testing::ValuesIn(kMathModes), kName);
INSTANTIATE_TEST_SUITE_P(Modes, TreeProgramsSlow, testing::ValuesIn(kMathModes), kName);

TEST(TreeEncoder, LeavesTreesThatNeedMoreRegistersToTheGraph) {
  // A full binary tree of differences, whose need is its height.
  std::string text = "x0/x1";
  for (int height = 1; height < 6; ++height) {
    Encoders encoders(Math::kPrecise, 3);
    encoders.expectSame(infixes(std::array{std::string_view(text)})[0]);
    EXPECT_EQ(encoders.is_encoded, height <= 3) << text;
    text = "(" + text + ")/(" + text + ")";
  }
}

TEST(TreeEncoder, TakesTheNumbersOfColumns) {
  const HandlerTable table({Precision::kF64, Math::kFast, allOperators(), 4, 4});
  const Expression expression = infixes(std::array{std::string_view("x7*x2 - x7")})[0];
  const Population population({&expression, 1});
  TreeReader reader(Precision::kF64, Math::kFast);
  std::vector<std::uint32_t> numbers(8, EncodeOptions::kNotStaged);
  numbers[7] = 0;
  numbers[2] = 1;
  std::vector<std::uint8_t> operators(kOpCount), columns(2);
  Bytecode code;
  EncodeOptions options;
  options.columns = numbers;
  options.staged_columns = 2;
  ASSERT_TRUE(TreeEncoder(table.numbers()).encode(reader.read(population[0]), 0, options, {operators, columns}, code));
  EXPECT_EQ(columns, (std::vector<std::uint8_t>{1, 1}));
  EXPECT_EQ(BytecodeMachine<double>(table, {5, 3}, {}).run(code, 1)[0], 10);
}

}  // namespace
}  // namespace srjit
