// The data of explanations: every stage, and what belongs together in it.
#include "tools/explain/request.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "compiler/target/architecture.h"
#include "tests/generators/population.h"
#include "tests/gpu_model/device_engine.h"
#include "tests/tools/process.h"
#include "tools/explain/liveness.h"
#include "tools/explain/output.h"
#include "tools/explain/sample.h"
#include "tools/line_diff.h"

namespace srjit::explain {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

Request requestFor(const std::vector<std::string>& texts, Precision precision = Precision::kF32,
                   Math math = Math::kPrecise) {
  Request request;
  request.texts = texts;
  for (const std::string& text : texts) request.expressions.push_back(parse(text, Language::kInfix).value());
  request.precision = precision;
  request.math = math;
  request.architecture = architectureOf(kDefaultArchitecture).name;
  request.pipeline = Pipeline::standard(math);
  request.times = false;
  return request;
}

const Stage& stageOf(const Explanation& explanation, const std::string& name) {
  return *std::ranges::find(explanation.stages, name, &Stage::name);
}

const NodeFacts& factsOf(const Explanation& explanation, const Id& id) {
  return *std::ranges::find(explanation.nodes, id, &NodeFacts::id);
}

const std::vector<std::string> kTexts = {"sin(x0)^2 + x1/4", "p0*exp(-p1*x0) + sin(x0)", "max(x0, x1) - log(x1)"};

/// The stages, and the commands that print them.
const std::map<std::string, std::vector<std::string>> kCommandOf = {
    {"bytecode", {"bytecode"}},
    {"host-bytecode", {"bytecode", "--host"}},
    {"llvm", {"llvm"}},
    {"ptx", {"ptx"}},
    {"host-llvm", {"llvm", "--host"}},
    {"asm", {"asm"}},
    {"direct", {"sass", "--tier", "direct"}},
};

TEST(Explain, StagesAreWhatTheCommandsPrint) {
  for (const Precision precision : {Precision::kF32, Precision::kF64}) {
    for (const Math math : {Math::kStrict, Math::kPrecise, Math::kFast}) {
      const Explanation explanation = explain(requestFor(kTexts, precision, math)).value();
      ASSERT_EQ(explanation.stages.size(), kCommandOf.size());
      for (const auto& [name, command] : kCommandOf) {
        std::vector<std::string> words = command;
        words.insert(words.end(), {"--precision", nameOf(precision), "--math", nameOf(math)});
        words.insert(words.end(), kTexts.begin(), kTexts.end());
        std::vector<std::string> printed = splitLines(runCommand(words, "/").out);
        const Stage& stage = stageOf(explanation, name);
        if (name == "direct") {  // which has a line about the kernel, what instructions say, and padding
          ASSERT_GT(printed.size(), stage.lines.size());
          for (std::size_t i = 0; i < stage.lines.size(); ++i) {
            EXPECT_THAT(printed[i + 1], testing::StartsWith(stage.lines[i].text));
          }
          continue;
        }
        std::vector<std::string> lines;
        for (const Line& line : stage.lines) lines.push_back(line.text);
        EXPECT_EQ(lines, printed) << name;
      }
    }
  }
}

TEST(Explain, EveryNodeIsInEveryStage) {
  for (const Precision precision : {Precision::kF32, Precision::kF64}) {
    const Explanation explanation = explain(requestFor(kTexts, precision)).value();
    for (const Stage& stage : explanation.stages) {
      std::set<Id> seen;
      for (const Line& line : stage.lines) seen.insert(line.nodes.begin(), line.nodes.end());
      for (const GraphLine& node : explanation.graphs.back().lines) {
        // Negation is part of the operands of machine instructions.
        const bool is_modifier = node.text.starts_with("neg ") && stage.name == "direct";
        EXPECT_TRUE(seen.contains(node.id) || is_modifier) << stage.name << ' ' << node.id << " = " << node.text;
      }
    }
  }
}

TEST(Explain, IdsNameKnownNodesOnly) {
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    GeneratorOptions options{.seed = seed, .max_nodes = 25, .parameters = 3, .parameter_probability = 0.3};
    std::vector<std::string> texts;
    for (const Expression& expression : ExpressionGenerator(options).batch(4)) {
      texts.push_back(print(expression, Language::kInfix));
    }
    const Explanation explanation = explain(requestFor(texts)).value();
    std::set<Id> known;
    for (const NodeFacts& node : explanation.nodes) EXPECT_TRUE(known.insert(node.id).second) << node.id;
    const auto check = [&](const Ids& ids) {
      for (const Id& id : ids) EXPECT_TRUE(known.contains(id)) << id;
    };
    for (const NodeFacts& node : explanation.nodes) check(node.operands);
    for (const Source& source : explanation.sources) {
      for (const SourceToken& token : source.tokens) check({token.node});
    }
    std::vector<Graph> graphs = explanation.graphs;
    graphs.push_back(explanation.gradient);
    for (const Graph& graph : graphs) {
      for (const GraphLine& line : graph.lines) check({line.id});
      for (const auto& [name, root] : graph.roots) check({root});
      for (const Fired& rule : graph.fired) check({rule.before, rule.after});
      for (const auto& [before, after] : graph.replaced) check({before, after});
      check(graph.added), check(graph.removed);
    }
    for (const Stage& stage : explanation.stages) {
      for (const Line& line : stage.lines) check(line.nodes);
    }
  }
}

TEST(Explain, GraphsAreThoseOfTheCommand) {
  std::vector<std::string> words = {"passes", "--print-after", "all", "--json"};
  words.insert(words.end(), kTexts.begin(), kTexts.end());
  const auto printed = nlohmann::json::parse(runCommand(words, "/").out);
  const Explanation explanation = explain(requestFor(kTexts)).value();
  ASSERT_EQ(explanation.graphs.size(), printed["passes"].size() + 1);
  for (std::size_t g = 0; g < explanation.graphs.size(); ++g) {
    const Graph& graph = explanation.graphs[g];
    std::string text;
    for (const GraphLine& line : graph.lines) text += line.id + " = " + line.text + '\n';
    for (const auto& [name, id] : graph.roots) text += name + " = " + id + '\n';
    const nlohmann::json& expected = g == 0 ? printed["input"] : printed["passes"][g - 1]["graph"];
    EXPECT_EQ(expected.get<std::string>(), text);
  }
}

TEST(Explain, SaysWhichRuleFired) {
  const Explanation explanation = explain(requestFor({"sin(x0)^2 + x1/4"})).value();
  const Graph& simplified = explanation.graphs.at(1);
  ASSERT_EQ(simplified.fired.size(), 3U);
  EXPECT_EQ(simplified.fired[0].pattern, "x0 ^ 2");
  EXPECT_EQ(simplified.fired[0].keeps, "precise");
  EXPECT_EQ(factsOf(explanation, simplified.fired[0].before).text, "pow %0, 2");
  EXPECT_EQ(factsOf(explanation, simplified.fired[0].after).text, "square %0");
  EXPECT_EQ(simplified.fired[2].depth, 1U);
  EXPECT_EQ(simplified.fired[2].after, "0.25");
  EXPECT_THAT(simplified.removed, Contains(simplified.fired[0].before));
  EXPECT_THAT(simplified.added, Contains(simplified.fired[0].after));
  // Literals become parameters, and an operator moves.
  EXPECT_THAT(explanation.graphs.at(3).respelled, Not(IsEmpty()));
  EXPECT_TRUE(explanation.graphs.at(3).changed());
  EXPECT_THAT(explanation.graphs.at(4).moved, Not(IsEmpty()));
}

TEST(Explain, TokensAreNodesOfTheFirstGraph) {
  const Explanation explanation = explain(requestFor({"x0 * -sin(x1)"})).value();
  const Source& source = explanation.sources.at(0);
  std::vector<std::string> tokens;
  for (const SourceToken& token : source.tokens) {
    tokens.push_back(source.text.substr(token.first, token.size) + ' ' + token.node);
  }
  EXPECT_THAT(tokens, ElementsAre("x0 x0", "x1 x1", "sin %0", "- %1", "* %2"));
  EXPECT_THAT(source.tokens[4].operands, ElementsAre(0, 3));
}

TEST(Explain, HasTheGradient) {
  const Explanation explanation = explain(requestFor(kTexts)).value();
  std::vector<std::string> names;
  for (const auto& [name, id] : explanation.gradient.roots) names.push_back(name);
  EXPECT_THAT(names, ElementsAre("expression 1", "expression 2", "derivative of expression 2 by p0",
                                 "derivative of expression 2 by p1", "expression 3"));
  EXPECT_THAT(explain(requestFor({"x0 + 1"}))->gradient.roots, IsEmpty());
}

TEST(Explain, BoundsErrorsOfNodes) {
  Request request = requestFor({"x0 - x1", "x0 * 3"});
  request.data = {{1.0, 2.0}, {0.5, 2.0}};
  const Explanation explanation = explain(request).value();
  const ErrorBound exact = factsOf(explanation, "x0").bound.value();
  EXPECT_EQ(exact.relative, 0);
  // A difference of numbers that are so near is exact, a product is rounded.
  EXPECT_EQ(factsOf(explanation, "%0").bound->absolute, 0);
  request.data = {{1.1, 2.3}, {0.5, 2.0}};
  const double bound = factsOf(explain(request).value(), "%1").bound->relative;
  EXPECT_GT(bound, 0x1p-25);
  EXPECT_LT(bound, 0x1p-22);
}

TEST(Explain, RefusesWhatIsTooLongOrHasTooFewColumns) {
  std::string sum = "x0";
  for (std::size_t i = 0; i < kMostTokens / 2; ++i) sum += " + x0";
  EXPECT_THAT(explain(requestFor({sum})).error().message, HasSubstr("201 tokens, but at most 200"));
  Request request = requestFor({"x2"});
  request.data = {{1.0}};
  EXPECT_THAT(explain(request).error().message, HasSubstr("need 3 variables, but the data have 1"));
}

TEST(Explain, MeasuresTheProcessor) {
  Request request = requestFor({"x0 * 2"});
  request.data = {std::vector<double>(1000, 1.5)};
  request.times = true;
  const Explanation explanation = explain(request).value();
  ASSERT_GE(explanation.times.size(), 2U);
  for (const Time& time : explanation.times) {
    EXPECT_GT(time.compile_seconds, 0);
    EXPECT_GT(time.evaluate_seconds, 0);
    EXPECT_EQ(time.rows, 1000U);
  }
}

TEST(Explain, MeasuresAGpu) {
  FakeMachine machine;
  const Engine engine = machine.engine({.precision = Precision::kF32, .math = Math::kPrecise});
  Request request = requestFor({"x0 * 2", "x0 - x1"});
  request.data = {std::vector<double>(300, 1.5), std::vector<double>(300, 0.5)};
  Explanation explanation;
  ASSERT_TRUE(addTimesOf(engine, "cuda:0", request, sampleFor(request), explanation).ok());
  std::vector<std::string> tiers;
  for (const Time& time : explanation.times) tiers.push_back(time.device + ' ' + time.tier);
  EXPECT_THAT(tiers, Contains("cuda:0 interpret"));
}

TEST(Explain, AStageThatThereIsNotIsANotice) {
  Request request = requestFor({"x0 + 1"});
  request.architecture = "sm_75";
  const Explanation explanation = explain(request).value();
  EXPECT_EQ(std::ranges::count(explanation.stages, "direct", &Stage::name), 0);
  EXPECT_EQ(std::ranges::count(explanation.stages, "ptx", &Stage::name), 1);
  EXPECT_THAT(explanation.notices, Contains("no machine code of the direct tier: no direct code for sm_75"));
}

TEST(Explain, RefusesTextsOfOtherExpressions) {
  Request request = requestFor({"x0 + 1"});
  request.texts = {"x0"};
  EXPECT_THAT(explain(request).error().message, HasSubstr("a text of 1 tokens for an expression of 3"));
}

// Constants stay in the graph.
TEST(Explain, NodesOfAnEmptyPipelineAreInTheProcessorsProgram) {
  Request request = requestFor({"sin(x0*2) + 3"});
  request.pipeline = Pipeline();
  const Explanation explanation = explain(request).value();
  std::set<Id> seen;
  for (const Line& line : stageOf(explanation, "host-bytecode").lines) {
    EXPECT_FALSE(line.nodes.empty()) << line.text;
    seen.insert(line.nodes.begin(), line.nodes.end());
  }
  for (const GraphLine& node : explanation.graphs.back().lines) EXPECT_TRUE(seen.contains(node.id)) << node.id;
}

TEST(Explain, BoundsNothingWhereValuesOverflow) {
  Request request = requestFor({"exp(x0)", "exp(x0) * 0.5 - exp(x0)"});
  request.data = {{1.0, 1000.0}};
  const Explanation explanation = explain(request).value();
  for (const NodeFacts& node : explanation.nodes) {
    if (node.kind != "operator" || !node.bound) continue;
    EXPECT_TRUE(std::isinf(node.bound->relative) && std::isinf(node.bound->absolute)) << node.text;
  }
}

TEST(ExplainOutput, TextHasCommentsAndJsonTheSameLines) {
  const Explanation explanation = explain(requestFor(kTexts)).value();
  const std::string text = asText(explanation);
  EXPECT_THAT(text, HasSubstr("; %0 = sin x0\n"));
  EXPECT_THAT(text, HasSubstr("// %0 = sin x0\n"));
  EXPECT_THAT(text, HasSubstr("# %0 = sin x0\n"));
  EXPECT_THAT(text, HasSubstr("x0 ^ 2 -> square(x0) (precise)"));
  const auto json = nlohmann::json::parse(asJson(explanation, true));
  EXPECT_EQ(json, nlohmann::json::parse(asJson(explanation, false)));
  EXPECT_EQ(json["stages"].size(), explanation.stages.size());
  EXPECT_EQ(json["nodes"]["%0"]["text"], "sin x0");
  EXPECT_EQ(json["graphs"][0]["lines"][0]["node"], "%0");
}

TEST(ExplainOutput, PageHasNothingThatEndsItsData) {
  Request request = requestFor({"x0 + 1"});
  request.columns = {"</script><b>"};
  request.texts = {"`</script><b>` + 1"};
  const std::string page = asPage(explain(request).value());
  EXPECT_EQ(page.find("</script><b>"), std::string::npos);
  EXPECT_EQ(page.find("/* explanation */"), std::string::npos);
}

using sass::Form;
using sass::Instruction;

TEST(ExplainLiveness, CountsRegistersUntilTheirLastRead) {
  const std::vector<std::optional<Instruction>> code = {
      Instruction{.form = Form::kMovI, .destination = 4},
      Instruction{.form = Form::kMovI, .destination = 5},
      Instruction{.form = Form::kFAddRR, .destination = 6, .sources = {4, 5, sass::kZero}},
      Instruction{.form = Form::kFAddRR, .destination = 4, .sources = {6, 6, sass::kZero}},
      Instruction{.form = Form::kExit},
  };
  EXPECT_THAT(liveRegisters(code, {}), ElementsAre(1, 2, 3, 2, 0));
}

TEST(ExplainLiveness, FollowsBranchesAndGuards) {
  constexpr auto kBack = static_cast<std::uint32_t>(-3 * static_cast<std::int32_t>(sizeof(sass::Word)));
  const std::vector<std::optional<Instruction>> code = {
      Instruction{.form = Form::kMovI, .destination = 1},
      // A loop that reads R1 in every turn; the guarded write may not happen.
      Instruction{.form = Form::kMovI, .guard = 0, .destination = 2},
      Instruction{.form = Form::kFAddRR, .destination = 2, .sources = {1, 2, sass::kZero}},
      Instruction{.form = Form::kBra, .guard = 0, .immediate = kBack},
      Instruction{.form = Form::kExit},
  };
  EXPECT_THAT(liveRegisters(code, {}), ElementsAre(2, 2, 2, 2, 0));
}

TEST(LineDiff, KeepsALongestCommonPart) {
  const std::vector<std::string> a = {"1", "2", "3", "4"}, b = {"1", "3", "5", "4"};
  EXPECT_THAT(lineDiff(a, b), ElementsAre(DiffLine{' ', "1"}, DiffLine{'-', "2"}, DiffLine{' ', "3"},
                                          DiffLine{'+', "5"}, DiffLine{' ', "4"}));
  EXPECT_THAT(lineDiff({}, b), testing::SizeIs(4));
  const std::vector<std::string> many(5000, "x"), others(5000, "y");
  EXPECT_THAT(lineDiff(many, others), testing::SizeIs(10'000));
}

}  // namespace
}  // namespace srjit::explain
