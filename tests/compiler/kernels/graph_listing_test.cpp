// The lines that machine code names, and the file that has them.

#include <algorithm>
#include <regex>
#include <set>
#include <sstream>

#include <gmock/gmock.h>

#include "compiler/kernels/image_maker.h"
#include "compiler/nvptx/kernels.h"
#include "ir/ops.h"
#include "tests/generators/scratch.h"

namespace srjit {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

/// Two graphs: sqrt(x0) * x1 + x0, and x0 - x1 with sin of it.
std::vector<Dag> twoGraphs() {
  std::vector<Dag> dags;
  for (const bool first : {true, false}) {
    Dag& dag = dags.emplace_back(Precision::kF32);
    const NodeId x0 = dag.variable(0), x1 = dag.variable(1);
    const auto apply = [&](Op op, std::vector<NodeId> operands) { return dag.apply(op, operands); };
    const NodeId node =
        first ? apply(Op::kAdd, {apply(Op::kMul, {apply(Op::kSqrt, {x0}), x1}), x0}) : apply(Op::kSub, {x0, x1});
    dag.addRoot(node);
    if (!first) dag.addRoot(apply(Op::kSin, {node}));
  }
  return dags;
}

std::vector<std::string> linesIn(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

TEST(GraphListing, HasALinePerOperator) {
  const std::vector<Dag> dags = twoGraphs();
  const GraphListing listing = listGraphs(dags, "/somewhere/graphs.txt");
  const std::vector<std::string> lines = linesIn(listing.text);
  ASSERT_EQ(listing.sources.size(), dags.size());
  std::size_t operators = 0;
  for (std::size_t i = 0; i < dags.size(); ++i) {
    EXPECT_EQ(listing.sources[i].file, "/somewhere/graphs.txt");
    for (NodeId id = 0; id < dags[i].size(); ++id) {
      const SourcePlace place = listing.sources[i].places[id];
      const Node& node = dags[i].node(id);
      EXPECT_EQ(place.line != 0, node.kind == Token::Kind::kOp);
      if (place.line == 0) continue;
      ++operators;
      ASSERT_LE(place.line, lines.size());
      EXPECT_THAT(lines[place.line - 1], HasSubstr(" = " + std::string(infoOf(node.op).name) + " "));
    }
  }
  EXPECT_EQ(operators, 5U);
  EXPECT_EQ(lines[0], "srjit_rows_0:");
  EXPECT_THAT(listing.text, HasSubstr("\n\nsrjit_rows_1:\n%0 = sub x0, x1\n"));
}

TEST(GraphListing, IsWhatPtxNames) {
  const std::vector<Dag> dags = twoGraphs();
  const GraphListing listing = listGraphs(dags, "/somewhere/graphs.txt");
  const std::string ptx = rowsPtx(dags, {}, listing.sources).value();
  EXPECT_THAT(ptx, HasSubstr("\"/somewhere/graphs.txt\""));
  std::set<unsigned> named;
  const std::regex place(R"(\.loc\s+\d+ (\d+) \d+)");
  for (std::sregex_iterator found(ptx.begin(), ptx.end(), place), end; found != end; ++found) {
    named.insert(static_cast<unsigned>(std::stoul((*found)[1])));
  }
  named.erase(0);
  std::set<unsigned> expected;
  for (const SourceMap& source : listing.sources) {
    for (const SourcePlace& at : source.places) expected.insert(at.line);
  }
  expected.erase(0);
  EXPECT_EQ(named, expected);
}

TEST(GraphListing, IsWrittenOnce) {
  const Scratch scratch;
  const std::vector<Dag> dags = twoGraphs();
  const std::string folder = scratch.path("new/listings");
  const GraphListing listing = writeGraphListing(dags, folder).value();
  EXPECT_EQ(contentOf(listing.sources[0].file), listing.text);
  EXPECT_EQ(writeGraphListing(dags, folder)->sources[1].file, listing.sources[0].file);
  EXPECT_NE(writeGraphListing(std::span(dags).first(1), folder)->sources[0].file, listing.sources[0].file);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder), {}), 2);
}

TEST(GraphListing, SaysWhyItIsNotWritten) {
  const Scratch scratch;
  const std::vector<Dag> dags = twoGraphs();
  const std::string file = scratch.write("file", "content");
  const auto refused = writeGraphListing(dags, file);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::kIo);
  EXPECT_THAT(refused.error().message, HasSubstr("cannot write the listing " + file + "/"));
  EXPECT_THAT(refused.error().message, Not(HasSubstr("Success")));
  EXPECT_FALSE(llvmImageMaker(file)->rows(dags, {}));
}

TEST(GraphListing, ImagesWithLinesAreOthers) {
  const Scratch scratch;
  const auto plain = llvmImageMaker(), listing = llvmImageMaker(scratch.path("listings"));
  EXPECT_NE(plain->identity(), listing->identity());
  EXPECT_NE(listing->identity(), llvmImageMaker(scratch.path("others"))->identity());
  const KernelImage image = listing->rows(twoGraphs(), {}).value();
  const std::string code(reinterpret_cast<const char*>(image.code.data()), image.code.size());
  ASSERT_EQ(std::distance(std::filesystem::directory_iterator(scratch.path("listings")), {}), 1);
  EXPECT_THAT(code,
              HasSubstr(std::filesystem::directory_iterator(scratch.path("listings"))->path().filename().string()));
}

}  // namespace
}  // namespace srjit
