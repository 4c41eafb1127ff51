// The worked example of docs/internals/passes.md, compiled and run; but for the spelling of the include, the page must
// show exactly this code.
#include <fstream>
#include <sstream>

#include <gtest/gtest.h>

// [example]
#include "ir/ops.h"
#include "passes/pass.h"

namespace {

using namespace srjit;

/// exp(x) * exp(y) -> exp(x + y), wherever it stands.
Dag mergeExponentials(const Dag& from, const PassContext&) {
  Dag to(from.precision());
  std::vector<NodeId> image(from.size());  // the node of `to` for every node of `from`
  const auto isExp = [&](NodeId id) { return to.node(id).kind == Token::Kind::kOp && to.node(id).op == Op::kExp; };
  for (NodeId id = 0; id < from.size(); ++id) {  // operands have smaller ids, so they are done
    const Node& node = from.node(id);
    if (node.kind != Token::Kind::kOp) {
      image[id] = to.copyLeaf(from, id);
      continue;
    }
    std::vector<NodeId> operands;
    for (const NodeId operand : node.inputs()) operands.push_back(image[operand]);
    if (node.op == Op::kMul && isExp(operands[0]) && isExp(operands[1])) {
      const NodeId sum = to.apply(Op::kAdd, {to.node(operands[0]).operands[0], to.node(operands[1]).operands[0]});
      image[id] = to.apply(Op::kExp, {sum});
    } else {
      image[id] = to.apply(node.op, operands);
    }
  }
  for (const NodeId root : from.roots()) to.addRoot(image[root]);
  return to;
}

const Status kRegistered =
    registerPass({"merge-exp", mergeExponentials, Exactness::kBounded, "one exponential instead of two"});

}  // namespace
// [example]

namespace {

std::string fileText(const std::string& path) {
  std::ifstream file(std::string(SRJIT_SOURCE_DIR) + "/" + path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(CustomPass, RunsByName) {
  ASSERT_TRUE(kRegistered.ok());
  Dag dag(Precision::kF64);
  const NodeId x = dag.apply(Op::kExp, {dag.variable(0)}), y = dag.apply(Op::kExp, {dag.variable(1)});
  dag.addRoot(dag.apply(Op::kMul, {x, y}));
  const Pipeline pipeline = Pipeline::parse("merge-exp,schedule", Math::kPrecise).value();
  EXPECT_EQ(printDag(pipeline.run(dag, {Math::kPrecise})), "%0 = add x0, x1\n%1 = exp %0\nroot 0 = %1\n");
}

TEST(CustomPass, EqualsTheExampleOfTheDocumentation) {
  const std::string source = fileText("tests/passes/custom_pass_test.cpp"), mark = "// [example]\n";
  const std::size_t first = source.find(mark) + mark.size();
  std::string example = source.substr(first, source.find(mark, first) - first);
  // Programs outside include the installed header.
  const std::string inside = "#include \"ir/ops.h\"\n#include \"passes/pass.h\"\n";
  ASSERT_TRUE(example.starts_with(inside));
  example.replace(0, inside.size(), "#include <srjit/ir/ops.h>\n#include <srjit/passes/pass.h>\n");
  EXPECT_NE(fileText("docs/internals/passes.md").find("```cpp\n" + example + "```\n"), std::string::npos);
}

TEST(PassDocumentation, ListsEveryStandardPass) {
  const std::string page = fileText("docs/internals/passes.md");
  const Pipeline pipeline = Pipeline::standard(Math::kFast);
  for (const Pass& pass : pipeline.passes()) {
    const char* exactness = pass.exactness == Exactness::kExact ? "exact" : "bounded";
    EXPECT_NE(page.find("| `" + pass.name + "` | " + exactness + " |"), std::string::npos) << pass.name;
    EXPECT_NE(page.find("| " + pass.doc + " |\n"), std::string::npos) << pass.doc;
  }
}

}  // namespace
