// Code that names its source (compiler/lowering/source_map.h).
#include "compiler/lowering/source_map.h"

#include <set>
#include <sstream>

#include <gmock/gmock.h>

#include "compiler/host/jit.h"
#include "compiler/nvptx/kernels.h"
#include "ir/text.h"
#include "passes/pass.h"

namespace srjit {
namespace {

using testing::HasSubstr;
using testing::Not;

Dag graphOf(const char* text) {
  const Expression expression = parse(text, Language::kInfix).value();
  return Pipeline::standard(Math::kPrecise)
      .run(Dag::fromExpressions({&expression, 1}, Precision::kF32), PassContext{Math::kPrecise});
}

/// Node i is in line i + 1.
SourceMap mapOf(const Dag& dag) {
  SourceMap map{"expressions.txt", "/somewhere", {}};
  for (unsigned id = 0; id < dag.size(); ++id) map.places.push_back({id + 1, 7});
  return map;
}

/// The instructions of PTX or assembly: lines that are no directive and no label.
std::vector<std::string> instructionsOf(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    const std::size_t first = line.find_first_not_of('\t');
    if (first == 1 && line[first] != '.') lines.push_back(line);
  }
  return lines;
}

std::set<std::string> linesNamed(const std::string& text) {
  std::set<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    std::istringstream words(line);
    std::string word, file, number;
    words >> word >> file >> number;
    if (word == ".loc" && number != "0") lines.insert(number);
  }
  return lines;
}

TEST(SourceMap, PtxHasTheSameInstructionsAndNamesEveryNode) {
  const Dag dag = graphOf("exp(x0) + x1*2 + sin(x0)");
  const SourceMap map = mapOf(dag);
  const std::string plain = rowsPtx({&dag, 1}, {}).value(), placed = rowsPtx({&dag, 1}, {}, {&map, 1}).value();
  EXPECT_EQ(instructionsOf(placed), instructionsOf(plain));
  EXPECT_THAT(plain, Not(HasSubstr(".loc")));
  EXPECT_THAT(placed, HasSubstr("expressions.txt"));
  EXPECT_THAT(placed, Not(HasSubstr(", debug")));
  EXPECT_EQ(linesNamed(placed).size(), dag.size());
}

TEST(SourceMap, AssemblyOfTheProcessorHasTheSameInstructions) {
  const Dag dag = graphOf("exp(x0) + x1*2");
  const SourceMap map = mapOf(dag);
  const HostJit jit(Precision::kF32, Math::kPrecise);
  const std::string plain = jit.assemblyOf({&dag, 1}).value(), placed = jit.assemblyOf({&dag, 1}, {&map, 1}).value();
  EXPECT_EQ(instructionsOf(placed), instructionsOf(plain));
  EXPECT_GE(linesNamed(placed).size(), 3U);
}

TEST(SourceMap, IrHasPlacesAsCommentsAndIsTheSameWithoutThem) {
  const Dag dag = graphOf("sin(x0) * p0");
  SourceMap map = mapOf(dag);
  for (const bool optimized : {false, true}) {
    const std::string plain = rowsIr({&dag, 1}, {}, optimized).value();
    std::string placed = rowsIr({&dag, 1}, {}, optimized, {&map, 1}).value();
    EXPECT_THAT(placed, HasSubstr(" ; at 1:7"));
    for (std::size_t at; (at = placed.find(" ; at ")) != std::string::npos;)
      placed.erase(at, placed.find('\n', at) - at);
    EXPECT_EQ(placed, plain);
  }
}

TEST(SourceMap, NodesWithoutAPlaceHaveNone) {
  const Dag dag = graphOf("x0 + p0");
  const SourceMap map{"expressions.txt", "", {}};
  EXPECT_TRUE(linesNamed(rowsPtx({&dag, 1}, {}, {&map, 1}).value()).empty());
}

}  // namespace
}  // namespace srjit
