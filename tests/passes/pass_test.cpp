#include "passes/pass.h"

#include <algorithm>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
  EXPECT_THAT(namesOf(Pipeline::standard(Math::kStrict)), ElementsAre("fold", "simplify", "hoist", "schedule"));
  EXPECT_THAT(namesOf(Pipeline::standard(Math::kPrecise)),
              ElementsAre("fold", "simplify", "fold-functions", "simplify-precise", "fma", "hoist", "schedule"));
  EXPECT_THAT(namesOf(Pipeline::standard(Math::kFast)),
              ElementsAre("fold", "simplify", "fold-functions", "simplify-precise", "simplify-fast", "fma", "hoist",
                          "schedule"));
}

TEST(Pipeline, ListsAreParsed) {
  const auto parsed = [](std::string_view names) { return namesOf(Pipeline::parse(names, Math::kStrict).value()); };
  EXPECT_THAT(parsed(""), ElementsAre());
  EXPECT_THAT(parsed("  "), ElementsAre());
  EXPECT_THAT(parsed("none"), ElementsAre());
  EXPECT_THAT(parsed("fma, fold ,fma"), ElementsAre("fma", "fold", "fma"));
  EXPECT_THAT(parsed("fma,standard"), ElementsAre("fma", "fold", "simplify", "hoist", "schedule"));
}

TEST(Pipeline, UnknownNamesAreReportedWithPositionAndKnownNames) {
  const auto pipeline = Pipeline::parse("fold, bold,fma", Math::kStrict);
  ASSERT_FALSE(pipeline.ok());
  EXPECT_EQ(pipeline.error().code, Errc::kInvalid);
  EXPECT_THAT(pipeline.error().message, HasSubstr("unknown pass 'bold'; known are none, standard, fold, simplify"));
  ASSERT_TRUE(pipeline.error().where);
  EXPECT_EQ(pipeline.error().where->column, 7u);
  EXPECT_EQ(pipeline.error().where->length, 4u);
}

TEST(Pipeline, AMissingNameIsAnError) {
  for (const auto& [names, column] : {std::pair{"fold,", 6u}, {",fold", 1u}, {"fold,,fma", 6u}}) {
    const auto pipeline = Pipeline::parse(names, Math::kStrict);
    ASSERT_FALSE(pipeline.ok()) << names;
    EXPECT_THAT(pipeline.error().message, HasSubstr("expected the name of a pass; known are none"));
    EXPECT_EQ(pipeline.error().where.value().column, column) << names;
  }
}

TEST(Pipeline, TheObserverSeesEveryPass) {
  std::vector<std::string> seen;
  const Dag result =
      Pipeline::parse("simplify,hoist", Math::kStrict)
          .value()
          .run(graphOf({"x0 * 1 + 2"}), {Math::kStrict}, [&](const Pass& pass, const Dag& dag, double s) {
            EXPECT_GE(s, 0);
            seen.push_back(pass.name + "\n" + printDag(dag));
          });
  EXPECT_EQ(printDag(result), "%0 = add x0, #0(2)\nroot 0 = %0\n");
  EXPECT_THAT(seen, ElementsAre("simplify\n%0 = add x0, 2\nroot 0 = %0\n", "hoist\n%0 = add x0, #0(2)\nroot 0 = %0\n"));
}

TEST(Registry, RejectsInvalidNames) {
  const auto message = [](std::string name) { return registerPass(identity(std::move(name))).error().message; };
  EXPECT_EQ(message(""), "a pass needs a name");
  EXPECT_EQ(message("a,b"), "pass name 'a,b' contains a comma or white space");
  EXPECT_EQ(message("a b"), "pass name 'a b' contains a comma or white space");
  EXPECT_EQ(message("fold"), "pass name 'fold' is taken");
  EXPECT_EQ(message("standard"), "pass name 'standard' is taken");
  EXPECT_EQ(registerPass({"empty", {}, Exactness::kExact, ""}).error().message, "pass 'empty' has no function");
}

TEST(Registry, IsThreadSafe) {
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

TEST(PrintDag, InlinesLeaves) {
  Dag dag = graphOf({"sin(x0) * p1 + 0.1", "if(x2, -0, p0)", "x1"}, Precision::kF32);
  EXPECT_EQ(printDag(ran(dag, "schedule")),
            "%0 = sin x0\n%1 = mul p1@0, %0\n%2 = add 0.1, %1\n%3 = if x2, -0, p0@1\n"
            "root 0 = %2\nroot 1 = %3\nroot 2 = x1\n");
}

}  // namespace
}  // namespace srjit
