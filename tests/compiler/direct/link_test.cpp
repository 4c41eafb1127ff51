// Linking of parts of direct code to one kernel, and reuse of parts.
#include <gtest/gtest.h>

#include "compiler/direct/emitter.h"
#include "ir/ops.h"
#include "passes/pass.h"

namespace srjit {
namespace {

constexpr std::size_t kLine = 8;  // instructions per line of the instruction cache

// x0 * x1 + (number of the root), and so on.
Dag graphOfRoots(std::uint32_t roots) {
  Dag dag(Precision::kF32);
  NodeId last = dag.apply(Op::kMul, {dag.variable(0), dag.variable(1)});
  for (std::uint32_t root = 0; root < roots; ++root) {
    last = dag.apply(Op::kAdd, {last, dag.literalParameter(root + 0.5)});
    dag.addRoot(last);
  }
  return dag;
}

void expectSame(const DirectPart& a, const DirectPart& b) {
  EXPECT_EQ(a.words, b.words);
  EXPECT_EQ(a.parameters, b.parameters);
  EXPECT_EQ(a.outputs, b.outputs);
  EXPECT_EQ(a.exits, b.exits);
  EXPECT_EQ(a.refused, b.refused);
  EXPECT_EQ(a.registers, b.registers);
  EXPECT_EQ(a.groups.size(), b.groups.size());
}

TEST(DirectLink, ReusedPartsEqualNewOnes) {
  auto emitter = DirectEmitter::create({}).value();
  DirectPart part = emitter.emit(graphOfRoots(100));
  for (const std::uint32_t roots : {3U, 70U, 0U}) {
    const Dag dag = graphOfRoots(roots);
    emitter.emit(dag, part);
    expectSame(part, emitter.emit(dag));
  }
}

TEST(DirectLink, WordsOfPartsFollowThePrologue) {
  const DirectOptions options;
  auto emitter = DirectEmitter::create(options).value();
  std::vector<DirectPart> parts;
  for (const std::uint32_t roots : {5U, 40U, 1U}) parts.push_back(emitter.emit(graphOfRoots(roots)));
  const DirectImage linked = linkDirect(parts, options).value(), joined = joinDirect(parts, options).value();
  std::vector<sass::Word> words = linked.words;
  for (const DirectPart& part : parts) {
    EXPECT_EQ(words.size() % kLine, 0U);
    words.insert(words.end(), part.words.begin(), part.words.end());
  }
  EXPECT_EQ(words, joined.words);
  EXPECT_EQ(linked.exits, joined.exits);
  ASSERT_EQ(linked.groups.size(), 4U);
  EXPECT_EQ(linked.groups[0].code, linked.words.size() * sizeof(sass::Word));
  EXPECT_EQ(linked.groups[1].code, (linked.words.size() + parts[0].words.size()) * sizeof(sass::Word));
  EXPECT_EQ(linked.groups[1].parameter, parts[0].parameters.size());
}

}  // namespace
}  // namespace srjit
