#include <filesystem>
#include <map>
#include <sstream>
#include <string>
#include <tuple>

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "compiler/interpreter/handler_table.h"
#include "compiler/kernels/assembler.h"
#include "ir/ops.h"
#include "tests/tools/process.h"
#include "tools/files/data.h"

namespace srjit {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

constexpr const char* kTable = "a,b,y\n1,2,3\n4,5,6\n7,8,10\n";

/// The names of all commands, as the message about an unknown one lists them.
std::vector<std::string> commandNames() {
  const std::string message = runCommand({"unknown"}, "/").err, before = "; there are ";
  const std::string::size_type begin = message.find(before);
  if (begin == std::string::npos) return {};
  std::istringstream list(message.substr(begin + before.size(), message.find('\n') - begin - before.size()));
  std::vector<std::string> names;
  for (std::string name; list >> name;) names.push_back(name.substr(0, name.find(',')));
  return names;
}

TEST(Command, HelpAndVersionSucceed) {
  const Outcome help = runCommand({"--help"}, "/");
  const std::string page = contentOf(SRJIT_SOURCE_DIR "/docs/command.md");
  EXPECT_EQ(help.status, 0);
  EXPECT_THAT(help.out, HasSubstr("Exit status"));
  const std::string machine =
      "3 the machine (no device, driver or tool, too little memory, a compile failure, an operator or architecture "
      "that "
      "a tier has no code for).";
  for (std::string text : {help.out, page}) {
    std::ranges::replace(text, '\n', ' ');
    EXPECT_THAT(text, HasSubstr(machine));
  }
  const std::string ops = runCommand({"ops", "--help"}, "/").out;
  EXPECT_THAT(ops, HasSubstr("  sr-jit ops --json\n"));
  EXPECT_THAT(ops, testing::Not(HasSubstr("sr-jit loss")));
  const std::vector<std::string> names = commandNames();
  EXPECT_THAT(names, testing::IsSupersetOf({"parse", "run", "doctor"}));
  for (const std::string& command : names) {
    EXPECT_THAT(help.out, HasSubstr("\n  " + command + " "));
    EXPECT_EQ(runCommand({command, "--help"}, "/").status, 0) << command;
    EXPECT_THAT(page, HasSubstr("`" + command + "`"));
  }
  EXPECT_THAT(runCommand({"--version"}, "/").out, testing::ContainsRegex("^sr-jit [0-9]+\\.[0-9]+\\.[0-9]+\n"));
}

TEST(Ops, EveryFormListsTheTable) {
  const json table = json::parse(runCommand({"ops", "--json"}, "/").out);
  ASSERT_EQ(table.size(), allOps().size());
  EXPECT_EQ(table[0]["name"], "add");
  EXPECT_EQ(table[0]["code"], 1);
  EXPECT_EQ(table[0]["text"], "+");
  EXPECT_EQ(table[0]["arity"], 2);
  EXPECT_THAT(runCommand({"ops"}, "/").out, HasSubstr("if(x, y, z)"));
}

TEST(Ops, PageOfTheDocumentationIsCurrent) {
  EXPECT_EQ(contentOf(SRJIT_SOURCE_DIR "/docs/operators.md"), runCommand({"ops", "--markdown"}, "/").out)
      << "run: sr-jit ops --markdown > docs/operators.md";
}

TEST(Parse, TranslatesBetweenForms) {
  EXPECT_EQ(runCommand({"parse", "x0*(x1+1)^2", "--to", "postfix"}, "/").out, "x0 x1 1 + 2 ^ *\n");
  EXPECT_EQ(runCommand({"parse", "+ x0 * 2 x1", "--from", "prefix"}, "/").out, "x0 + 2 * x1\n");
  EXPECT_EQ(runCommand({"parse", "mass*2", "--columns", "speed,mass", "--to", "prefix"}, "/").out, "* mass 2\n");
  EXPECT_EQ(runCommand({"parse", "--exprs", "-", "--to", "postfix"}, "/", "# two\nx0 + p0/p1\t0.1 2\n\nx1\n").out,
            "x0 p0 p1 / +\t0.1 2\nx1\n");
  EXPECT_EQ(runCommand({"parse", "--", "-x0"}, "/").out, "-x0\n");
}

TEST(Parse, TakesArgumentsVerbatim) {
  for (const std::string word : {"[x0,x1]", "[x0]", "x0,x1", "'x0'", "\"x0\"", "{}", "%%", "++", "", "`a,b`"}) {
    const Outcome outcome = runCommand({"parse", "--json", "--", word}, "/");
    const json objects = json::parse(outcome.out);
    ASSERT_EQ(objects.size(), 1) << word;
    EXPECT_EQ(objects[0]["status"], "syntax") << word;
    EXPECT_TRUE(word.empty() || outcome.err.find("\n" + word + "\n") != std::string::npos) << outcome.err;
  }
  EXPECT_EQ(runCommand({"parse", "x0", "x1*2", "--", "-x2", "--x3"}, "/").out, "x0\nx1 * 2\n-x2\n--x3\n");
  EXPECT_EQ(runCommand({"parse", "run", "--columns", "run"}, "/").out, "run\n")
      << "the name of a command is a valid word";
}

TEST(Parse, NamesOfColumnsAreOneWord) {
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"--columns", "a,b", "b+a"}, {"--columns=a,b", "b+a"}, {"b+a", "--columns", "a,b"}}) {
    std::vector<std::string> all = {"parse", "--to", "postfix"};
    all.insert(all.end(), words.begin(), words.end());
    const Outcome outcome = runCommand(all, "/");
    EXPECT_EQ(outcome.out, "b a +\n") << outcome.err;
  }
  EXPECT_EQ(runCommand({"parse", "--columns", "\"a,b\",größe", "`a,b`/größe"}, "/").out, "`a,b` / größe\n");
  EXPECT_EQ(runCommand({"parse", "--columns=", "x0"}, "/").out, "x0\n") << "an empty value is a value";
  // An expression behind it is an expression, for every command.
  for (const std::string command : {"passes", "llvm", "ptx", "bytecode", "asm"}) {
    const Outcome outcome = runCommand({command, "--columns", "mass,speed", "mass*speed"}, "/");
    EXPECT_EQ(outcome.status, 0) << command << ": " << outcome.err;
    EXPECT_NE(outcome.out, "") << command;
  }
}

TEST(Parse, UnneededParametersOfTheOptionAreIgnored) {
  EXPECT_EQ(runCommand({"parse", "p0*p1", "x0", "--params", "1 2 3"}, "/").out, "p0 * p1\t1 2\nx0\n");
}

TEST(Parse, ABadExpressionDoesNotStopTheOthers) {
  const Outcome outcome = runCommand({"parse", "x0 +", "x1"}, "/");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_EQ(outcome.out, "x1\n");
  EXPECT_THAT(outcome.err, StartsWith("sr-jit: expression 1:1:5: "));
  EXPECT_EQ(runCommand({"parse", "x0 +", "x1", "--keep-going"}, "/").status, 0);
  const json objects = json::parse(runCommand({"parse", "x0 +", "x1", "--json"}, "/").out);
  EXPECT_EQ(objects[0]["status"], "syntax");
  EXPECT_EQ(objects[1]["expression"], "x1");
}

TEST(Parse, DeepExpressionsAreJsonInJson) {
  constexpr std::size_t kDepth = 1'000'000;
  std::string deep = "x0";
  for (std::size_t i = 0; i < kDepth; ++i) deep += " neg";
  const Outcome outcome =
      runCommand({"parse", "--exprs", "-", "--from", "postfix", "--to", "json", "--json"}, "/", deep);
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out.substr(0, 100), StartsWith("[\n{\"index\":0,\"status\":\"ok\",\"expression\":{\"op\":"));
  EXPECT_TRUE(outcome.out.ends_with("},\"tokens\":1000001,\"stack_height\":1,\"variables\":1,\"parameters\":0}\n]\n"))
      << outcome.out.substr(outcome.out.size() - 100);
}

TEST(Parse, JsonHoldsTheTreeOfEveryGoodLine) {
  const Outcome outcome = runCommand({"parse", "x0 + 1", "x0 +", "--to", "json", "--json"}, "/");
  const json objects = json::parse(outcome.out);
  ASSERT_EQ(objects.size(), 2);
  EXPECT_EQ(objects[0]["expression"], json::parse(R"({"op": "add", "args": [{"var": 0}, 1]})"));
  EXPECT_EQ(objects[0]["tokens"], 3);
  EXPECT_EQ(objects[1]["index"], 1);
  EXPECT_THAT(objects[1]["message"].get<std::string>(), StartsWith("expression 2:1:5: "));
}

TEST(Parse, InvalidUtf8StillGivesJson) {
  const json objects = json::parse(runCommand({"parse", "x0 \xff", "--json"}, "/").out);
  EXPECT_EQ(objects[0]["status"], "syntax");
}

TEST(Passes, ShowTheGraphAfterEachPass) {
  const Outcome outcome = runCommand({"passes", "x0*x1 + 2*3", "--print-after", "simplify"}, "/");
  EXPECT_EQ(outcome.status, 0);
  EXPECT_THAT(outcome.out, HasSubstr("; after simplify\n"));
  EXPECT_THAT(outcome.out, HasSubstr("; result\n"));
  EXPECT_THAT(outcome.out, HasSubstr("fma x0, x1"));
  const json object = json::parse(runCommand({"passes", "x0*x1 + 2*3", "--json", "--passes", "simplify"}, "/").out);
  EXPECT_EQ(object["nodes"], 7);
  EXPECT_EQ(object["passes"][0]["name"], "simplify");
  EXPECT_EQ(object["passes"][0]["nodes"], 5);
  EXPECT_THAT(runCommand({"passes", "--list"}, "/").out, HasSubstr("simplify "));
}

TEST(Passes, TheInputIsShownAndNumbersStay) {
  const std::vector<std::string> words = {"passes",         "sin((x0 + 0) * 1) + 2", "x0 * 2", "--passes",
                                          "simplify,hoist", "--print-after",         "all"};
  const Outcome outcome = runCommand(words, "/");
  const std::string::size_type graphs = outcome.out.find("; input\n");
  ASSERT_NE(graphs, std::string::npos) << outcome.out;
  EXPECT_THAT(outcome.out.substr(graphs),
              StartsWith("; input\n%0 = add x0, 0\n%1 = mul %0, 1\n%2 = sin %1\n%3 = add %2, 2\n%4 = mul x0, 2\n"
                         "root 0 = %3\nroot 1 = %4\n; after simplify\n%0 = add x0, 0\n%5 = sin %0\n%6 = add 2, %5\n"
                         "%4 = mul x0, 2\nroot 0 = %6\nroot 1 = %4\n; after hoist\n%0 = add x0, #"));
  const std::string result = outcome.out.substr(outcome.out.find("; result\n"));
  EXPECT_THAT(result, testing::EndsWith("root 0 = %6\nroot 1 = %4\n"));
  // Without it the only graph is numbered from 0.
  EXPECT_THAT(runCommand({words.begin(), words.begin() + 5}, "/").out, testing::EndsWith("root 0 = %2\nroot 1 = %3\n"));
  std::vector<std::string> with_json = words;
  with_json.push_back("--json");
  const json object = json::parse(runCommand(with_json, "/").out);
  EXPECT_THAT(object["input"].get<std::string>(), StartsWith("%0 = add x0, 0\n"));
  EXPECT_THAT(object["graph"].get<std::string>(), testing::EndsWith("root 0 = %6\nroot 1 = %4\n"));
}

TEST(Kernels, EveryStageIsShown) {
  EXPECT_THAT(runCommand({"llvm", "x0*x1", "--unoptimized"}, "/").out, HasSubstr("fmul float"));
  EXPECT_THAT(runCommand({"llvm", "x0*x1", "--host", "--precision", "f64"}, "/").out, HasSubstr("x double>"));
  const Outcome ptx = runCommand({"ptx", "x0*x1", "--arch", "sm_80"}, "/");
  EXPECT_THAT(ptx.out, HasSubstr(".target sm_80"));
  EXPECT_THAT(ptx.out, HasSubstr("mul.rn.f32"));
  EXPECT_THAT(runCommand({"ptx", "x0*x1", "--kernel", "interpreter"}, "/").out, HasSubstr("srjit_interpreter"));
  EXPECT_NE(runCommand({"ptx", "x0*x1", "--kernel", "loss", "--loss", "mae"}, "/").out, ptx.out);
  const Scratch scratch;
  const std::string listing = scratch.path("graph.txt");
  EXPECT_THAT(runCommand({"ptx", "x0*x1", "--listing", listing}, "/").out, HasSubstr("\"" + listing + "\""));
  EXPECT_EQ(contentOf(listing), "srjit_rows_0:\n%0 = mul x0, x1\nroot 0 = %0\n");
  EXPECT_THAT(runCommand({"bytecode", "x0*x1"}, "/").out, HasSubstr("mul"));
  EXPECT_THAT(runCommand({"asm", "x0*x1"}, "/").out, HasSubstr(".globl"));
}

TEST(Kernels, CubinIsAFileWithFacts) {
  const Scratch scratch;
  const Outcome outcome = runCommand({"cubin", "x0*x1", "-o", "k.cubin", "--json"}, scratch.path(""));
  if (assemblerName().empty()) {
    EXPECT_EQ(outcome.status, 3) << outcome.err;
    EXPECT_THAT(scratch.list(), testing::IsEmpty());
    GTEST_SKIP() << "no assembler: " << outcome.err;
  }
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const json facts = json::parse(outcome.out);
  EXPECT_EQ(facts["kernels"][0]["name"], "srjit_rows_0");
  EXPECT_EQ(facts["kernels"][0]["stack_bytes"], 0);
  EXPECT_EQ(facts["bytes"], contentOf(scratch.path("k.cubin")).size());
  EXPECT_THAT(contentOf(scratch.path("k.cubin")), StartsWith("\x7f"
                                                             "ELF"));
}

TEST(Kernels, DirectCubinNeedsNoAssembler) {
  const Scratch scratch;
  const Outcome outcome =
      runCommand({"cubin", "--tier", "direct", "x0*x1", "x0 + 2", "-o", "k.cubin", "--json"}, scratch.path(""));
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const json facts = json::parse(outcome.out);
  ASSERT_EQ(facts["kernels"].size(), 1u);
  EXPECT_EQ(facts["kernels"][0]["name"], "srjit_direct");
  EXPECT_GT(facts["kernels"][0]["registers"], 0);
  EXPECT_EQ(facts["kernels"][0]["stack_bytes"], 0);
  EXPECT_EQ(facts["bytes"], contentOf(scratch.path("k.cubin")).size());
  EXPECT_THAT(contentOf(scratch.path("k.cubin")), StartsWith("\x7f"
                                                             "ELF"));
}

TEST(Kernels, ExpressionsWithoutDirectCodeAreReported) {
  const Scratch scratch;
  std::string too_long = "x0";
  for (int i = 0; i < 10'922; ++i) too_long += " x1 /";
  const std::string lines = "x0 x1 *\n" + too_long + "\nx0 +\nx1 2 *\n";
  const Outcome outcome = runCommand(
      {"cubin", "--tier", "direct", "--from", "postfix", "--exprs", "-", "-o", "k.cubin"}, scratch.path(""), lines);
  EXPECT_EQ(outcome.status, 3);
  EXPECT_THAT(outcome.err, HasSubstr("sr-jit: standard input:2: its code of the direct tier is too long, or needs more "
                                     "than 64 registers; use --tier compile\n"));
  EXPECT_THAT(outcome.err, HasSubstr("standard input:3:"));
  EXPECT_THAT(outcome.out, HasSubstr("srjit_direct: "));
  EXPECT_THAT(scratch.list(), testing::SizeIs(1));
  const Outcome none =
      runCommand({"cubin", "--tier", "direct", "--from", "postfix", "--exprs", "-", "-o", "none.cubin"},
                 scratch.path(""), too_long + "\n");
  EXPECT_EQ(none.status, 3);
  EXPECT_EQ(none.out, "");
  EXPECT_THAT(none.err, HasSubstr("is too long"));
  EXPECT_THAT(scratch.list(), testing::SizeIs(1)) << "no file without code";
}

TEST(Kernels, EachTierHasItsArchitectures) {
  const Scratch scratch;
  const auto cubin = [&](const char* arch) {
    return runCommand({"cubin", "--tier", "direct", "--arch", arch, "x0*x1", "-o", "k.cubin"}, scratch.path(""));
  };
  const Outcome older = cubin("sm_75");
  EXPECT_EQ(older.status, 3);
  EXPECT_EQ(older.err, "sr-jit: no direct code for sm_75; use --tier compile\n");
  EXPECT_THAT(scratch.list(), testing::IsEmpty());
  const Outcome newer = cubin("sm_120");
  EXPECT_EQ(newer.status, 0) << newer.err;
  EXPECT_THAT(newer.out, HasSubstr("bytes for sm_120\n"));
}

// An engine's interpreter has the depth that is the default here.
TEST(Kernels, TheInterpreterIsTheOneOfEngines) {
  const std::string depth = std::to_string(kInterpreterDepth);
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"ptx", "--kernel", "interpreter", "x0*x1 + x2"}, {"bytecode", "sin(x0) + x1*x2"}}) {
    std::vector<std::string> given = words;
    given.insert(given.end(), {"--depth", depth});
    EXPECT_TRUE(runCommand(words, "/").out == runCommand(given, "/").out) << words[0];
    EXPECT_THAT(runCommand({words[0], "--help"}, "/").out, HasSubstr("--depth 3..16=" + depth)) << words[0];
  }
}

TEST(Doctor, ListsWhatWasFound) {
  const Outcome outcome = runCommand({"doctor", "--json"}, "/");
  EXPECT_EQ(outcome.status, 0);
  const json findings = json::parse(outcome.out);
  std::map<std::string, json> by_name;
  for (const json& finding : findings) by_name[finding["name"]] = finding;
  EXPECT_EQ(by_name["LLVM"]["found"], true);
  EXPECT_EQ(by_name["host code"]["found"], true) << by_name["host code"];
  EXPECT_EQ(by_name["PTX"]["found"], true) << by_name["PTX"];
  for (const char* const name :
       {"processor", "nvJitLink", "ptxas", "nvdisasm", "gnuplot", "kernel cache", "CUDA driver"}) {
    EXPECT_TRUE(by_name.contains(name)) << name;
  }
  EXPECT_THAT(runCommand({"doctor"}, "/").out, HasSubstr("processor"));
}

TEST(Doctor, SaysThatTheCpuNeedsNothingOfWhatIsMissing) {
  const Scratch scratch;
  const Outcome outcome = runShell("env PATH=/nowhere SRJIT_CUDA_HOME=/nowhere \"$SRJIT\" doctor", scratch.path(""));
  ASSERT_THAT(outcome.out, HasSubstr("\nmissing gnuplot "));
  EXPECT_THAT(outcome.out, EndsWith("\nAll expressions can be evaluated on the CPU, without what is missing.\n"));
}

// An existing file may not be loadable as a library.
TEST(Doctor, UnloadableComponentsAreMissing) {
  const Scratch scratch;
  std::filesystem::create_directories(scratch.path("lib64"));
  std::filesystem::create_directories(scratch.path("bin"));
  scratch.write("lib64/libnvJitLink.so", "no library");
  scratch.write("bin/ptxas", "no program");
  const Outcome outcome = runShell("SRJIT_CUDA_HOME=$PWD \"$SRJIT\" doctor --json", scratch.path(""));
  for (const json& finding : json::parse(outcome.out)) {
    const std::string what = finding["what"];
    if (finding["name"] == "nvJitLink") {
      // Another one may be installed in the loader's search path.
      EXPECT_THAT(what, testing::AnyOf(HasSubstr(scratch.path("lib64/libnvJitLink.so") + ": "),
                                       testing::Not(HasSubstr(scratch.path("")))));
      EXPECT_TRUE(finding["found"] == false || what.find(scratch.path("")) == std::string::npos) << what;
    } else if (finding["name"] == "ptxas") {
      EXPECT_EQ(finding["found"], false);
      EXPECT_THAT(what, HasSubstr(scratch.path("bin/ptxas")));
    }
  }
}

TEST(Doctor, FindsWhatPipInstalls) {
  const Scratch scratch;
  for (const char* const folder : {"nvidia/cu13/lib", "nvidia/nvjitlink/lib"}) {
    const std::string library = std::string(folder) + "/libnvJitLink.so.13";
    std::filesystem::create_directories(scratch.path(folder));
    scratch.write(library, "no library");
    const Outcome outcome = runShell(
        "env -u CUDA_HOME -u CUDA_PATH SRJIT_PYTHON_PACKAGES=/nowhere:$PWD \"$SRJIT\" doctor --json", scratch.path(""));
    const json findings = json::parse(outcome.out);
    const auto found = std::ranges::find(findings, "nvJitLink", [](const json& finding) { return finding["name"]; });
    ASSERT_NE(found, findings.end());
    // A library that can be loaded may be installed elsewhere.
    if ((*found)["found"] == false) {
      EXPECT_THAT((*found)["what"], HasSubstr(scratch.path(library) + ": "));
    }
    std::filesystem::remove_all(scratch.path("nvidia"));
  }
}

TEST(Run, WritesOneColumnPerExpression) {
  const Scratch scratch;
  scratch.write("t.csv", kTable);
  const Outcome outcome =
      runCommand({"run", "a + b", "x0*x1/10", "--data", "t.csv", "--target", "y", "--quiet"}, scratch.path(""));
  EXPECT_EQ(outcome.out, "e0,e1\n3,0.2\n9,2\n15,5.6\n");
  EXPECT_EQ(outcome.err, "");
  EXPECT_EQ(outcome.status, 0);
}

TEST(Run, WritesMatricesInThePrecision) {
  const Scratch scratch;
  scratch.write("t.csv", kTable);
  for (const std::string precision : {"f32", "f64"}) {
    const Outcome outcome = runCommand(
        {"run", "x0", "x1/3", "--data", "t.csv", "--precision", precision, "--out", "o.npy"}, scratch.path(""));
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    const Result<DataTable> matrix = readData(scratch.path("o.npy"));
    ASSERT_TRUE(matrix.ok());
    EXPECT_EQ(matrix->from_f32, precision == "f32");
    EXPECT_THAT(matrix->columns[0], ElementsAre(1, 4, 7));
    EXPECT_EQ(matrix->columns[1][0], precision == "f32" ? double{2.0f / 3.0f} : 2.0 / 3.0);
  }
}

TEST(Run, NamesTakePrecedenceOverIndices) {
  const Scratch scratch;
  scratch.write("t.csv", "x1,x2,\"net weight\",y\n3,5,7,1\n");
  const Outcome outcome =
      runCommand({"run", "x1*x2", "x[0]*x[1]", "`net weight`", "--data", "t.csv", "--target", "y"}, scratch.path(""));
  EXPECT_EQ(outcome.out, "e0,e1,e2\n15,15,7\n") << outcome.err;
  const Outcome postfix = runCommand(
      {"run", "x1 `net weight` *", "--from", "postfix", "--data", "t.csv", "--target", "y"}, scratch.path(""));
  EXPECT_EQ(postfix.out, "e0\n21\n") << postfix.err;
}

TEST(Run, ABadExpressionIsAColumnOfNan) {
  const Scratch scratch;
  scratch.write("t.csv", kTable);
  std::vector<std::string> words = {"run", "x0 +", "x0", "--data", "t.csv", "--out", "o.csv"};
  EXPECT_EQ(runCommand(words, scratch.path("")).status, 1);
  EXPECT_EQ(contentOf(scratch.path("o.csv")), "e0,e1\nnan,1\nnan,4\nnan,7\n");
  words.push_back("--keep-going");
  EXPECT_EQ(runCommand(words, scratch.path("")).status, 0);
  words.push_back("--json");
  std::ranges::replace(words, "o.csv", "o.json");
  EXPECT_EQ(runCommand(words, scratch.path("")).status, 0);
  const json objects = json::parse(contentOf(scratch.path("o.json")));
  EXPECT_EQ(objects[0]["status"], "syntax");
  EXPECT_EQ(objects[1]["values"], json({1, 4, 7}));
}

TEST(Run, DataFromStandardInput) {
  EXPECT_EQ(runCommand({"run", "a*2", "--data", "-"}, "/", kTable).out, "e0\n2\n8\n14\n");
}

TEST(Run, FullStandardOutputIsAnError) {
  const Outcome outcome = runCommand({"run", "a*2", "--data", "-"}, "/", kTable, "/dev/full");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.err, HasSubstr("cannot write standard output: No space left on device"));
}

TEST(Loss, OneLinePerExpressionInOrder) {
  const Scratch scratch;
  scratch.write("t.csv", kTable);
  const std::vector<std::string> words = {"loss",  "a + p0\t2", "a +", "x0/(x1 - 5)", "--data",
                                          "t.csv", "--target",  "y",   "--loss",      "sse"};
  const Outcome outcome = runCommand(words, scratch.path(""));
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.out, StartsWith("index,loss,valid_rows,status\n0,1,3,ok\n1,nan,0,syntax\n2,"));
  auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), words.begin(), words.end());
    return runCommand(more, scratch.path("")).out;
  };
  EXPECT_THAT(with({"--nan", "skip"}), testing::EndsWith(",2,ok\n"));
  EXPECT_THAT(with({"--nan", "reject"}), HasSubstr("\n2,inf,"));
  const json objects = json::parse(with({"--json", "--nan", "reject"}));
  EXPECT_EQ(objects[0]["loss"], 1);
  EXPECT_EQ(objects[1]["status"], "syntax");
  EXPECT_EQ(objects[2]["loss"], "inf");
}

TEST(Loss, CountsValidRowsUnderEveryPolicy) {
  const Scratch scratch;
  scratch.write("t.csv", kTable);
  const std::string lines = "log(a - 1)\na\nlog(a - 9)\na*1e300\n";
  for (const std::string policy : {"propagate", "skip", "reject"}) {
    const Outcome outcome = runCommand(
        {"loss", "--exprs", "-", "--data", "t.csv", "--target", "y", "--nan", policy, "--precision", "f64", "--quiet"},
        scratch.path(""), lines);
    const std::string& text = outcome.out;
    std::vector<std::string> valid;
    for (std::size_t at = text.find('\n') + 1; at < text.size(); at = text.find('\n', at) + 1) {
      const std::size_t begin = text.find(',', text.find(',', at) + 1) + 1;
      valid.push_back(text.substr(begin, text.find(',', begin) - begin));
    }
    // log(0) is infinite. The last loss is infinite, too, though all its predictions are finite.
    EXPECT_THAT(valid, testing::ElementsAre("2", "3", "0", "3")) << policy << '\n' << text;
  }
}

TEST(Loss, SummaryReportsTheTiers) {
  const Scratch scratch;
  scratch.write("t.csv", kTable);
  std::string sum = "a";
  for (int i = 0; i < 3000; ++i) sum += "+b";  // more tokens than are compiled
  const auto summary = [&](const std::string& expressions) {
    return runCommand(
               {"loss", "--exprs", "-", "--data", "t.csv", "--target", "y", "--device", "cpu", "--tier", "compile"},
               scratch.path(""), expressions)
        .err;
  };
  EXPECT_THAT(summary("a\n"), HasSubstr("1 expression x 3 rows, compiled on cpu"));
  EXPECT_THAT(summary(sum), HasSubstr("1 expression x 3 rows, interpreted on cpu"));
  EXPECT_THAT(summary(sum + "\na\nb\n"), HasSubstr("3 expressions x 3 rows, 2 compiled, 1 interpreted on cpu"));
}

TEST(Loss, WeightsAndTargetAreNoVariables) {
  const Scratch scratch;
  scratch.write("t.csv", "w,a,y\n1,5,5\n0,6,100\n");
  const Outcome outcome =
      runCommand({"loss", "x0", "a", "--data", "t.csv", "--target", "y", "--weights", "w"}, scratch.path(""));
  EXPECT_THAT(outcome.out, StartsWith("index,loss,valid_rows,status\n0,0,2,ok\n1,0,2,ok\n"));
}

TEST(Loss, TiersGiveTheSameBytes) {
  const Scratch scratch;
  std::string table = "a,b,y\n";
  for (int i = 0; i < 1000; ++i) {
    table += std::to_string(i * 0.37 - 50) + ',' + std::to_string(i % 17 * 0.11) + ',' + std::to_string(i % 5) + '\n';
  }
  scratch.write("t.csv", table);
  std::string expected;
  for (const std::string tier : {"interpret", "compile"}) {
    for (const std::string threads : {"1", "2"}) {
      const Outcome outcome = runCommand({"loss", "sin(a)*b + 1", "exp(b) - a/3", "--data", "t.csv", "--target", "y",
                                          "--tier", tier, "--threads", threads},
                                         scratch.path(""));
      EXPECT_EQ(outcome.status, 0) << outcome.err;
      if (expected.empty()) expected = outcome.out;
      EXPECT_EQ(outcome.out, expected) << tier << ' ' << threads;
    }
  }
}

TEST(Command, FitsParameters) {
  const Scratch scratch;
  scratch.write("t.csv", "x,y,w\n1,3,1\n2,5,1\n3,7,1\n4,9,0.5\n");
  const std::vector<std::string> words = {"fit", "p0*x + p1", "x +", "p0*p1*x",     "--data", "t.csv",    "--target",
                                          "y",   "--weights", "w",   "--precision", "f64",    "--device", "cpu"};
  const Outcome outcome = runCommand(words, scratch.path(""));
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.out, StartsWith("index,loss,valid_rows,iterations,status,parameters\n0,"));
  EXPECT_THAT(outcome.out, HasSubstr("\n1,nan,0,0,failed: syntax,\n2,"));
  std::vector<std::string> json = words;
  json.insert(json.end(), {"--json", "--starts", "4", "--seed", "9"});
  const Outcome objects = runCommand(json, scratch.path(""));
  EXPECT_EQ(runCommand(json, scratch.path("")).out, objects.out) << "drawn starts depend on the seed alone";
  const auto parsed = nlohmann::json::parse(objects.out);
  ASSERT_EQ(parsed.size(), 3U);
  EXPECT_EQ(parsed[0]["status"], "converged");
  EXPECT_NEAR(parsed[0]["parameters"][0].get<double>(), 2, 1e-9);
  EXPECT_NEAR(parsed[0]["parameters"][1].get<double>(), 1, 1e-9);
  EXPECT_EQ(parsed[0]["standard_errors"].size(), 2U);
  EXPECT_LT(parsed[0]["start"].get<int>(), 4);
  EXPECT_EQ(parsed[1]["status"], "failed: syntax");
  EXPECT_TRUE(parsed[2]["standard_errors"][1].is_null()) << "p1 can be replaced by p0";
  EXPECT_EQ(runCommand({"fit", "p0", "--data", "t.csv", "--target", "y", "--loss", "sum"}, scratch.path("")).status, 1);
}

// One row is far from the line of the others.
TEST(Command, FitsAndEvaluatesOtherLosses) {
  const Scratch scratch;
  scratch.write("t.csv", "x,y\n1,3\n2,5\n3,7\n4,9\n5,91\n");
  const auto run = [&](const char* command, const std::string& loss, std::vector<std::string> more = {}) {
    std::vector<std::string> words = {command, "p0*x + p1", "--params", "2 1",      "--data", "t.csv",  "--target",
                                      "y",     "--loss",    loss,       "--device", "cpu",    "--quiet"};
    words.insert(words.end(), more.begin(), more.end());
    return runCommand(words, scratch.path(""));
  };
  EXPECT_THAT(run("loss", "mae").out, HasSubstr("\n0,16,5,ok\n"));
  EXPECT_THAT(run("loss", "huber:2").out, HasSubstr("\n0,31.6,5,ok\n"));
  EXPECT_THAT(run("loss", "quantile:0.25").out, HasSubstr("\n0,4,5,ok\n"));
  EXPECT_THAT(run("loss", "abs(f - y)^1.5 / 80^1.5", {"--precision", "f64"}).out, HasSubstr("\n0,0.2,5,ok\n"));
  EXPECT_THAT(run("fit", "log(1 + (f - y)^2)", {"--precision", "f64"}).out, HasSubstr(",converged,"));
  const auto refined = nlohmann::json::parse(run("fit", "huber:0.5", {"--json", "--refine", "3"}).out);
  const auto wide = nlohmann::json::parse(run("fit", "huber:0.5", {"--json", "--precision", "f64"}).out);
  EXPECT_NEAR(refined[0]["loss"].get<double>(), wide[0]["loss"].get<double>(), 1e-12) << "as good as in f64";
  for (const auto& [loss, message, status] :
       {std::tuple("hubr", "'hubr' is none of sse, mse", 2),
        std::tuple("huber:x", "expected a number behind the colon", 2),
        std::tuple("abs(f - ", "--loss:1:9: expected an operand", 1), std::tuple("f - z", "unknown name 'z'", 1),
        std::tuple("mse:2", "the constant 2 of mse: expected none", 1),
        std::tuple("log-loss", "log-loss of a target of 91: expected targets from 0 to 1", 1)}) {
    const Outcome outcome = run("loss", loss);
    EXPECT_EQ(outcome.status, status) << loss;
    EXPECT_THAT(outcome.err, HasSubstr(message));
    EXPECT_EQ(outcome.out, "");
  }
}

TEST(Command, FitsOfExpressionsWithoutParametersSaySo) {
  const Scratch scratch;
  scratch.write("t.csv", "x,y\n1,3\n2,5\n3,7\n4,9\n");
  for (const char* loss : {"mse", "scaled-mse", "mae"}) {
    const Outcome outcome = runCommand(
        {"fit", "2*x", "--data", "t.csv", "--target", "y", "--loss", loss, "--device", "cpu"}, scratch.path(""));
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    EXPECT_THAT(outcome.out, HasSubstr(",no parameters,")) << loss;
  }
}

// A line without a fit is not fitted again, and keeps its status.
TEST(Command, RefinesWhatWasFitted) {
  const Scratch scratch;
  scratch.write("t.csv", "x,y\n1,3\n2,5\n3,7\n4,9\n");
  const Outcome outcome = runCommand({"fit", "log(-x*p0^2)", "p0*x + p1", "p0*x", "--data", "t.csv", "--target", "y",
                                      "--device", "cpu", "--json", "--refine", "3"},
                                     scratch.path(""));
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  const auto lines = nlohmann::json::parse(outcome.out);
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_EQ(lines[0]["status"], "failed: the start gives no finite loss and derivatives");
  EXPECT_EQ(lines[1]["status"], "converged");
  EXPECT_NEAR(lines[1]["parameters"][0].get<double>(), 2, 1e-9);
  EXPECT_EQ(lines[2]["status"], "converged");
}

TEST(Command, PrintsDerivatives) {
  const Outcome outcome = runCommand({"passes", "--gradient", "exp(p0*x0)"}, "/");
  EXPECT_EQ(outcome.status, 0);
  EXPECT_THAT(outcome.out, HasSubstr("; root 1: derivative of expression 1 by p0\n"));
  EXPECT_THAT(outcome.out, HasSubstr("differentiate"));
  const Outcome once = runCommand({"passes", "--gradient", "--passes", "differentiate", "p0*x0"}, "/");
  EXPECT_THAT(once.out, testing::Not(HasSubstr("root 2")));
}

}  // namespace
}  // namespace srjit
