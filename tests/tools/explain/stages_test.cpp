// The data of explanations: every stage, and what belongs together in it.
#include "tools/explain/explanation.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "compiler/target/architecture.h"
#include "tests/generators/population.h"
#include "tests/gpu_model/device_engine.h"
#include "tests/tools/process.h"
#include "tools/explain/stages.h"

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

const Json& stageOf(const Json& explanation, const std::string& name) {
  return *std::ranges::find_if(explanation["stages"], [&](const Json& stage) { return stage["name"] == name; });
}

Ids nodesOf(const Json& line) { return line.value("nodes", Ids{}); }

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
      const Json explanation = explain(requestFor(kTexts, precision, math)).value();
      ASSERT_EQ(explanation["stages"].size(), kCommandOf.size());
      for (const auto& [name, command] : kCommandOf) {
        std::vector<std::string> words = command;
        words.insert(words.end(), {"--precision", nameOf(precision), "--math", nameOf(math)});
        words.insert(words.end(), kTexts.begin(), kTexts.end());
        std::vector<std::string> printed = splitLines(runCommand(words, "/").out);
        Ids lines;
        for (const Json& line : stageOf(explanation, name)["lines"]) lines.push_back(line["text"]);
        if (name == "direct") {  // which has a line about the kernel, what instructions say, and padding
          ASSERT_GT(printed.size(), lines.size());
          for (std::size_t i = 0; i < lines.size(); ++i) EXPECT_THAT(printed[i + 1], testing::StartsWith(lines[i]));
          continue;
        }
        EXPECT_EQ(lines, printed) << name;
      }
    }
  }
}

TEST(Explain, EveryNodeIsInEveryStage) {
  for (const Precision precision : {Precision::kF32, Precision::kF64}) {
    const Json explanation = explain(requestFor(kTexts, precision)).value();
    for (const Json& stage : explanation["stages"]) {
      std::set<Id> seen;
      for (const Json& line : stage["lines"]) std::ranges::copy(nodesOf(line), std::inserter(seen, seen.end()));
      for (const Json& node : explanation["graphs"].back()["lines"]) {
        // Negation is part of the operands of machine instructions.
        const bool is_modifier = node["text"].get<std::string>().starts_with("neg ") && stage["name"] == "direct";
        EXPECT_TRUE(seen.contains(node["node"].get<Id>()) || is_modifier) << stage["name"] << ' ' << node;
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
    const Json explanation = explain(requestFor(texts)).value();
    const Json& known = explanation["nodes"];
    const auto check = [&](const Json& ids) {
      for (const Json& id : ids) EXPECT_TRUE(known.contains(id.get<Id>())) << id;
    };
    for (const auto& [id, node] : known.items()) check(node["operands"]);
    for (const Json& source : explanation["sources"]) {
      for (const Json& token : source["tokens"]) check(Json::array({token["node"]}));
    }
    Json graphs = explanation["graphs"];
    if (explanation.contains("gradient")) graphs.push_back(explanation["gradient"]);
    for (const Json& graph : graphs) {
      for (const Json& line : graph["lines"]) check(Json::array({line["node"]}));
      for (const Json& root : graph["roots"]) check(Json::array({root[1]}));
      for (const Json& rule : graph["fired"]) check(Json::array({rule["before"], rule["after"]}));
      for (const Json& pair : graph["replaced"]) check(pair);
      for (const char* list : {"added", "removed", "moved", "respelled"}) check(graph[list]);
    }
    for (const Json& stage : explanation["stages"]) {
      for (const Json& line : stage["lines"]) check(nodesOf(line));
    }
  }
}

TEST(Explain, GraphsAreThoseOfTheCommand) {
  std::vector<std::string> words = {"passes", "--print-after", "all", "--json"};
  words.insert(words.end(), kTexts.begin(), kTexts.end());
  const auto printed = nlohmann::json::parse(runCommand(words, "/").out);
  const Json explanation = explain(requestFor(kTexts)).value();
  ASSERT_EQ(explanation["graphs"].size(), printed["passes"].size() + 1);
  for (std::size_t g = 0; g < explanation["graphs"].size(); ++g) {
    const Json& graph = explanation["graphs"][g];
    std::string text;
    for (const Json& line : graph["lines"]) text += line["node"].get<Id>() + " = " + line["text"].get<Id>() + '\n';
    for (const Json& root : graph["roots"]) text += root[0].get<Id>() + " = " + root[1].get<Id>() + '\n';
    const nlohmann::json& expected = g == 0 ? printed["input"] : printed["passes"][g - 1]["graph"];
    EXPECT_EQ(expected.get<std::string>(), text);
  }
}

TEST(Explain, SaysWhichRuleFired) {
  const Json explanation = explain(requestFor({"sin(x0)^2 + x1/4"})).value();
  const Json &graphs = explanation["graphs"], &nodes = explanation["nodes"], &simplified = graphs.at(1);
  const Json& fired = simplified["fired"];
  ASSERT_EQ(fired.size(), 3U);
  EXPECT_EQ(fired[0]["pattern"], "x0 ^ 2");
  EXPECT_EQ(fired[0]["keeps"], "precise");
  EXPECT_EQ(nodes[fired[0]["before"].get<Id>()]["text"], "pow %0, 2");
  EXPECT_EQ(nodes[fired[0]["after"].get<Id>()]["text"], "square %0");
  EXPECT_EQ(fired[2]["depth"], 1U);
  EXPECT_EQ(fired[2]["after"], "0.25");
  EXPECT_THAT(simplified["removed"], Contains(fired[0]["before"]));
  EXPECT_THAT(simplified["added"], Contains(fired[0]["after"]));
  // Literals become parameters, and an operator moves.
  EXPECT_THAT(graphs.at(3)["respelled"], Not(IsEmpty()));
  EXPECT_EQ(graphs.at(3)["changed"], true);
  EXPECT_THAT(graphs.at(4)["moved"], Not(IsEmpty()));
}

TEST(Explain, TokensAreNodesOfTheFirstGraph) {
  const Json explanation = explain(requestFor({"x0 * -sin(x1)"})).value();
  const Json& source = explanation["sources"].at(0);
  const std::string text = source["text"];
  std::vector<std::string> tokens;
  for (const Json& token : source["tokens"]) {
    tokens.push_back(text.substr(token["first"], token["size"]) + ' ' + token["node"].get<Id>());
  }
  EXPECT_THAT(tokens, ElementsAre("x0 x0", "x1 x1", "sin %0", "- %1", "* %2"));
  EXPECT_THAT(source["tokens"][4]["operands"], ElementsAre(0, 3));
}

TEST(Explain, HasTheGradient) {
  const Json explanation = explain(requestFor(kTexts)).value();
  std::vector<std::string> names;
  for (const Json& root : explanation["gradient"]["roots"]) names.push_back(root[0]);
  EXPECT_THAT(names, ElementsAre("expression 1", "expression 2", "derivative of expression 2 by p0",
                                 "derivative of expression 2 by p1", "expression 3"));
  EXPECT_FALSE(explain(requestFor({"x0 + 1"}))->contains("gradient"));
}

TEST(Explain, BoundsErrorsOfNodes) {
  Request request = requestFor({"x0 - x1", "x0 * 3"});
  request.data = {{1.0, 2.0}, {0.5, 2.0}};
  const Json explanation = explain(request).value();
  const auto boundOf = [](const Json& of, const Id& id) { return of["nodes"][id]["bound"]; };
  EXPECT_EQ(boundOf(explanation, "x0")["relative"], 0);
  // A difference of numbers that are so near is exact, a product is rounded.
  EXPECT_EQ(boundOf(explanation, "%0")["absolute"], 0);
  request.data = {{1.1, 2.3}, {0.5, 2.0}};
  const double bound = boundOf(explain(request).value(), "%1")["relative"];
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
  const Json explanation = explain(request).value();
  ASSERT_GE(explanation["times"].size(), 2U);
  for (const Json& time : explanation["times"]) {
    EXPECT_GT(time["compile_seconds"], 0);
    EXPECT_GT(time["evaluate_seconds"], 0);
    EXPECT_EQ(time["rows"], 1000U);
  }
}

TEST(Explain, MeasuresAGpu) {
  FakeMachine machine;
  const Engine engine = machine.engine({.precision = Precision::kF32, .math = Math::kPrecise});
  Request request = requestFor({"x0 * 2", "x0 - x1"});
  request.data = {std::vector<double>(300, 1.5), std::vector<double>(300, 0.5)};
  Json explanation{{"times", Json::array()}, {"notices", Json::array()}};
  ASSERT_TRUE(addTimesOf(engine, "cuda:0", request, sampleFor(request), explanation).ok());
  std::vector<std::string> tiers;
  for (const Json& time : explanation["times"]) {
    tiers.push_back(time["device"].get<std::string>() + ' ' + time["tier"].get<std::string>());
  }
  EXPECT_THAT(tiers, Contains("cuda:0 interpret"));
}

TEST(Explain, AStageThatThereIsNotIsANotice) {
  Request request = requestFor({"x0 + 1"});
  request.architecture = "sm_75";
  const Json explanation = explain(request).value();
  std::vector<std::string> stages;
  for (const Json& stage : explanation["stages"]) stages.push_back(stage["name"]);
  EXPECT_THAT(stages, testing::AllOf(Contains("ptx"), Not(Contains("direct"))));
  EXPECT_THAT(explanation["notices"], Contains("no machine code of the direct tier: no direct code for sm_75"));
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
  const Json explanation = explain(request).value();
  std::set<Id> seen;
  for (const Json& line : stageOf(explanation, "host-bytecode")["lines"]) {
    EXPECT_THAT(nodesOf(line), Not(IsEmpty())) << line;
    std::ranges::copy(nodesOf(line), std::inserter(seen, seen.end()));
  }
  for (const Json& node : explanation["graphs"].back()["lines"])
    EXPECT_TRUE(seen.contains(node["node"].get<Id>())) << node;
}

TEST(Explain, BoundsNothingWhereValuesOverflow) {
  Request request = requestFor({"exp(x0)", "exp(x0) * 0.5 - exp(x0)"});
  request.data = {{1.0, 1000.0}};
  const Json explanation = explain(request).value();
  for (const auto& [id, node] : explanation["nodes"].items()) {
    if (node["kind"] != "operator" || !node.contains("bound")) continue;
    EXPECT_TRUE(node["bound"]["relative"] == "inf" && node["bound"]["absolute"] == "inf") << node;
  }
}

TEST(ExplainOutput, TextHasCommentsAndJsonTheSameLines) {
  const Json explanation = explain(requestFor(kTexts)).value();
  const std::string text = asText(explanation);
  EXPECT_THAT(text, HasSubstr("; %0 = sin x0\n"));
  EXPECT_THAT(text, HasSubstr("// %0 = sin x0\n"));
  EXPECT_THAT(text, HasSubstr("# %0 = sin x0\n"));
  EXPECT_THAT(text, HasSubstr("x0 ^ 2 -> square(x0) (precise)"));
  const auto json = nlohmann::json::parse(asJson(explanation, true));
  EXPECT_EQ(json, nlohmann::json::parse(asJson(explanation, false)));
  EXPECT_EQ(json["stages"].size(), explanation["stages"].size());
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
