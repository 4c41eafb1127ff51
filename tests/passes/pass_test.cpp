#include "passes/pass.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "passes/rewrite_log.h"
#include "tests/generators/graphs.h"

namespace srjit {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> namesOf(const Pipeline& pipeline) {
  std::vector<std::string> names;
  for (const Pass& pass : pipeline.passes()) names.push_back(pass.name);
  return names;
}

Pass identity(std::string name) {
  return {std::move(name), [](const Dag& dag, const PassContext&) { return dag; }, Exactness::kExact, "does nothing"};
}

TEST(Pipeline, StandardPassesDependOnTheMode) {
  EXPECT_THAT(namesOf(Pipeline::standard(Math::kStrict)), ElementsAre("simplify", "hoist", "schedule"));
  EXPECT_THAT(namesOf(Pipeline::standard(Math::kPrecise)), ElementsAre("simplify", "fma", "hoist", "schedule"));
  EXPECT_THAT(namesOf(Pipeline::standard(Math::kFast)), ElementsAre("simplify", "fma", "hoist", "schedule"));
}

TEST(Pipeline, ListsAreParsed) {
  const auto parsed = [](std::string_view names) { return namesOf(Pipeline::parse(names, Math::kStrict).value()); };
  EXPECT_THAT(parsed(""), ElementsAre());
  EXPECT_THAT(parsed("  "), ElementsAre());
  EXPECT_THAT(parsed("none"), ElementsAre());
  EXPECT_THAT(parsed("fma, hoist ,fma"), ElementsAre("fma", "hoist", "fma"));
  EXPECT_THAT(parsed("fma,standard"), ElementsAre("fma", "simplify", "hoist", "schedule"));
}

TEST(Pipeline, AnErrorOfAnUnknownNameHasItsPlaceAndTheKnownNames) {
  const auto pipeline = Pipeline::parse("hoist, bold,fma", Math::kStrict);
  ASSERT_FALSE(pipeline.ok());
  EXPECT_EQ(pipeline.error().code, Errc::kInvalid);
  EXPECT_THAT(pipeline.error().message, HasSubstr("unknown pass 'bold'; known are none, standard, simplify, fma"));
  ASSERT_TRUE(pipeline.error().where);
  EXPECT_EQ(pipeline.error().where->column, 8u);
  EXPECT_EQ(pipeline.error().where->length, 4u);
}

TEST(Pipeline, AMissingNameIsAnError) {
  for (const auto& [names, column] : {std::pair{"hoist,", 7u}, {",hoist", 1u}, {"hoist,,fma", 7u}}) {
    const auto pipeline = Pipeline::parse(names, Math::kStrict);
    ASSERT_FALSE(pipeline.ok()) << names;
    EXPECT_THAT(pipeline.error().message, HasSubstr("expected the name of a pass; known are none"));
    EXPECT_EQ(pipeline.error().where.value().column, column) << names;
  }
}

TEST(Pipeline, TheObserverSeesEveryPass) {
  std::vector<std::string> seen;
  const Dag result = Pipeline::parse("simplify,hoist", Math::kStrict)
                         .value()
                         .run(graphOf({"x0 * 1 + 2"}), {Math::kStrict}, [&](const Pass& pass, const Dag& dag, double) {
                           seen.push_back(pass.name + "\n" + printDag(dag));
                         });
  EXPECT_EQ(printDag(result), "%0 = add x0, #0(2)\nroot 0 = %0\n");
  EXPECT_THAT(seen, ElementsAre("simplify\n%0 = add x0, 2\nroot 0 = %0\n", "hoist\n%0 = add x0, #0(2)\nroot 0 = %0\n"));
}

TEST(Pipeline, TheObserverIsToldTheTimeOfEachPass) {
  ASSERT_TRUE(registerPass(waitingPass("waits")).ok());
  std::vector<double> times;
  Pipeline::parse("simplify,waits,hoist", Math::kStrict)
      .value()
      .run(graphOf({"x0 * 1 + 2"}), {Math::kStrict}, [&](const Pass&, const Dag&, double s) { times.push_back(s); });
  ASSERT_EQ(times.size(), 3U);
  EXPECT_GE(times[1], kWaitingPassSeconds);
}

TEST(Registry, RejectsInvalidNames) {
  const auto message = [](std::string name) { return registerPass(identity(std::move(name))).error().message; };
  EXPECT_EQ(message(""), "a pass needs a name");
  EXPECT_EQ(message("a,b"), "pass name 'a,b' contains a comma or white space");
  EXPECT_EQ(message("a b"), "pass name 'a b' contains a comma or white space");
  EXPECT_EQ(message("fma"), "pass name 'fma' is taken");
  EXPECT_EQ(message("standard"), "pass name 'standard' is taken");
  EXPECT_EQ(registerPass({"empty", {}, Exactness::kExact, ""}).error().message, "pass 'empty' has no function");
}

TEST(Registry, PassesAreRegisteredFromManyThreads) {
  const auto count = [] { return allPasses().size(); };
  const std::size_t before = count();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([t] {
      for (int i = 0; i < 20; ++i) {
        EXPECT_TRUE(registerPass(identity("threaded-" + std::to_string(t) + "-" + std::to_string(i))).ok());
        EXPECT_TRUE(Pipeline::parse("standard", Math::kFast).ok());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(count(), before + 80);
  EXPECT_FALSE(registerPass(identity("threaded-0-0")).ok());
}

TEST(Registry, PageOfTheDocumentationListsEveryStandardPass) {
  std::ifstream file(SRJIT_SOURCE_DIR "/docs/internals/passes.md");
  const std::string page{std::istreambuf_iterator<char>(file), {}};
  const Pipeline pipeline = Pipeline::standard(Math::kFast).withDerivatives();
  for (const Pass& pass : pipeline.passes()) {
    const char* exactness = pass.exactness == Exactness::kExact ? "exact" : "bounded";
    EXPECT_THAT(page, HasSubstr("| `" + pass.name + "` | " + exactness + " |"));
    EXPECT_THAT(page, HasSubstr("| " + pass.doc + " |\n"));
  }
}

TEST(PrintDag, InlinesLeaves) {
  Dag dag = graphOf({"sin(x0) * p1 + 0.1", "if(x2, -0, p0)", "x1"}, Precision::kF32);
  EXPECT_EQ(printDag(ran(dag, "schedule")),
            "%0 = sin x0\n%1 = mul %0, p1@0\n%2 = add %1, 0.1\n%3 = if x2, -0, p0@1\n"
            "root 0 = %2\nroot 1 = %3\nroot 2 = x1\n");
}

TEST(PrintDag, NumbersStayFromGraphToGraph) {
  NodeNumbers numbers;
  const Dag input = graphOf({"sin((x0 + 0) * 1) + 2", "x0 * 2"}, Precision::kF32);
  EXPECT_EQ(printDag(input, numbers),
            "%0 = add x0, 0\n%1 = mul %0, 1\n%2 = sin %1\n%3 = add %2, 2\n%4 = mul x0, 2\nroot 0 = %3\nroot 1 = %4\n");
  EXPECT_EQ(printDag(input, numbers), printDag(input)) << "the same graph again";
  // 1 * is gone, and with it the sine of it; the first operator stays, and so does the last.
  const Dag simpler = ran(input, "simplify");
  EXPECT_EQ(printDag(simpler, numbers),
            "%0 = add x0, 0\n%5 = sin %0\n%6 = add 2, %5\n%4 = mul x0, 2\nroot 0 = %6\nroot 1 = %4\n");
  const std::string hoisted = printDag(ran(simpler, "hoist"), numbers);
  for (const char* line : {"%0 = add x0, #", "%5 = sin %0\n", "%6 = add #", "%4 = mul x0, #", "root 0 = %6\n"}) {
    EXPECT_THAT(hoisted, HasSubstr(line));
  }
}

TEST(PrintDag, OperatorsOfOneGraphHaveDifferentNumbers) {
  Dag dag(Precision::kF64);
  const NodeId x = dag.variable(0);
  dag.addRoot(dag.apply(Op::kAdd, {x, dag.constant(2)}));
  dag.addRoot(dag.apply(Op::kAdd, {x, dag.literalParameter(2)}));
  dag.addRoot(dag.apply(Op::kAdd, {x, dag.parameter(0, 1)}));
  dag.addRoot(dag.apply(Op::kAdd, {x, dag.parameter(1, 0)}));
  EXPECT_THAT(printDag(dag), HasSubstr("root 0 = %0\nroot 1 = %1\nroot 2 = %2\nroot 3 = %3\n"));
}

}  // namespace
}  // namespace srjit
