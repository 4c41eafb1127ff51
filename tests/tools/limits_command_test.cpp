// --max-nodes, --max-bytes and --max-seconds: of every command that takes expressions, and of each request to a server.
#include <sys/stat.h>

#include <chrono>
#include <filesystem>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "ir/text.h"
#include "tests/generators/long_expressions.h"
#include "tests/tools/process.h"
#include "tools/report.h"

namespace srjit {
namespace {

using testing::HasSubstr;

bool isEmptyFolder(const std::string& folder) { return std::filesystem::is_empty(folder); }

/// Whether a process is there that is not dead already: whoever inherits it may take long to say goodbye.
bool isRunning(pid_t process) {
  const std::string facts = contentOf(fmt::format("/proc/{}/stat", process));
  const std::size_t name_end = facts.rfind(") ");
  return name_end != std::string::npos && facts[name_end + 2] != 'Z' && facts[name_end + 2] != 'X';
}

struct LimitedCommand {
  const char* name;
  std::vector<std::string> words;
  /// What becomes of an expression of kLongNodes nodes: its exit status, and a part of the message. With 0 it is
  /// computed or shown; with kMachineFailure it may be shown, too: the direct tier has code for some.
  int status = 0;
  const char* message = "";
};

void PrintTo(const LimitedCommand& command, std::ostream* stream) { *stream << command.name; }

constexpr const char* kTooLongForKernels = "but a kernel has at most 4096; --max-length ";
const LimitedCommand kLimitedCommands[] = {
    {"Parse", {"parse", "--to", "postfix"}},
    {"Passes", {"passes"}},
    {"PassesGradient", {"passes", "--gradient"}},
    {"Llvm", {"llvm"}, 1, kTooLongForKernels},
    {"LlvmHost", {"llvm", "--host"}, 1, kTooLongForKernels},
    {"LlvmInterpreter", {"llvm", "--kernel", "interpreter"}},
    {"Ptx", {"ptx"}, 1, kTooLongForKernels},
    {"PtxInterpreter", {"ptx", "--kernel", "interpreter"}},
    {"Cubin", {"cubin", "-o", "out.cubin"}, 1, kTooLongForKernels},
    {"CubinDirect", {"cubin", "-o", "out.cubin", "--tier", "direct"}, kMachineFailure, "too long"},
    {"Sass", {"sass"}, 1, kTooLongForKernels},
    {"SassDirect", {"sass", "--tier", "direct"}, kMachineFailure, "too long"},
    {"Bytecode", {"bytecode"}},
    {"BytecodeHost", {"bytecode", "--host"}},
    {"Asm", {"asm"}, 1, kTooLongForKernels},
    {"Explain", {"explain", "--no-times"}, 1, "but at most 200 are explained"},
    {"Run", {"run", "--data", "table.csv", "--device", "cpu", "--quiet"}},
    {"RunCompiled", {"run", "--data", "table.csv", "--device", "cpu", "--quiet", "--tier", "compile"}},
    {"Loss", {"loss", "--data", "table.csv", "--target", "y", "--device", "cpu", "--quiet"}},
    {"LossCompiled",
     {"loss", "--data", "table.csv", "--target", "y", "--device", "cpu", "--quiet", "--tier", "compile"}},
    {"Fit", {"fit", "--data", "table.csv", "--target", "y", "--device", "cpu", "--quiet"}},
    {"FitCompiled", {"fit", "--data", "table.csv", "--target", "y", "--device", "cpu", "--quiet", "--tier", "compile"}},
};

class LimitsOfCommands : public testing::TestWithParam<LimitedCommand> {
 protected:
  LimitsOfCommands() { scratch_.write("table.csv", "x0,x1,x2,y\n1,2,3,4\n2,3,4,5\n0.5,1,2,3\n"); }

  Outcome run(std::vector<std::string> more, const std::string& input) const {
    std::vector<std::string> words = GetParam().words;
    words.insert(words.end(), more.begin(), more.end());
    return runCommand(words, scratch_.path(""), input);
  }

  Scratch scratch_;
};

TEST_P(LimitsOfCommands, RefuseMoreNodesWithTheirPlace) {
  const Outcome outcome = run({"--exprs", "-", "--max-nodes", "3"}, "x0 + x1 + x2\n");
  EXPECT_EQ(outcome.status, 1) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("standard input:1:11: at least 4 nodes, but an expression may have at most 3; a "
                                     "larger max_nodes (--max-nodes) allows it\nx0 + x1 + x2\n          ^"));
}

TEST_P(LimitsOfCommands, RefuseFilesOfMoreBytes) {
  scratch_.write("many.txt", "x0 + x1 + x2 + x0 + x1 + x2 + x0 + x1 + x2 + x0 + x1 + x2 + x0 + x1 + x2\n");
  const Outcome outcome = run({"--exprs", "many.txt", "--max-bytes", "60"}, "");
  EXPECT_EQ(outcome.status, 1) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("many.txt: more than 60 bytes; a larger --max-bytes allows it"));
}

TEST_P(LimitsOfCommands, ShowComputeOrRefuseLongExpressions) {
  // Without a time limit of its own: what takes minutes ends by the timeout of ctest.
  for (const LongExpression& some : longExpressions()) {
    const Outcome outcome = run({"--exprs", "-"}, print(some.expression, Language::kInfix) + "\n");
    if (GetParam().status == kMachineFailure && outcome.status == kDone) continue;
    EXPECT_EQ(outcome.status, GetParam().status) << some.name << ": " << outcome.err.substr(0, 1000);
    EXPECT_THAT(outcome.err, HasSubstr(GetParam().message)) << some.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Command, LimitsOfCommands, testing::ValuesIn(kLimitedCommands),
                         [](const auto& command) { return std::string(command.param.name); });

/// Words of a command that would take more than a day, in this folder.
struct EndlessCommand {
  const char* name;
  std::vector<std::string> words;
};

void PrintTo(const EndlessCommand& command, std::ostream* stream) { *stream << command.name; }

class EndlessCommands : public testing::TestWithParam<EndlessCommand> {};

/// A chain of so many sines.
std::string sinesOfSines(std::size_t count) {
  std::string text;
  for (std::size_t i = 0; i < count; ++i) text += "sin(";
  return text + "x0" + std::string(count, ')') + '\n';
}

TEST_P(EndlessCommands, EndInTimeAndLeaveNothing) {
  const Scratch scratch;
  scratch.write("out", "old content");
  scratch.write("long.txt", sinesOfSines(300000));
  std::filesystem::create_directory(scratch.path("tmp"));
  const std::vector<std::string> before = scratch.list();
  std::string words;
  for (const std::string& word : GetParam().words) words += " '" + word + "'";
  const Outcome outcome = runShell(
      "TMPDIR=$PWD/tmp exec \"$SRJIT\"" + words + " --max-length 1000000000 --exprs long.txt", scratch.path(""));
  EXPECT_EQ(outcome.status, 1) << outcome.err;
  EXPECT_EQ(outcome.err,
            "sr-jit: stopped after 0.5 s, the longest that a call may take; a larger max_seconds "
            "(--max-seconds) allows more\n");
  EXPECT_EQ(outcome.out, "");
  EXPECT_EQ(scratch.list(), before);
  EXPECT_TRUE(isEmptyFolder(scratch.path("tmp")));
  EXPECT_EQ(contentOf(scratch.path("out")), "old content");
}

INSTANTIATE_TEST_SUITE_P(Command, EndlessCommands,
                         testing::Values(EndlessCommand{"Llvm", {"llvm", "--max-seconds", "0.5"}},
                                         EndlessCommand{"LlvmHost", {"llvm", "--host", "--max-seconds", "0.5"}},
                                         EndlessCommand{"Ptx", {"ptx", "--max-seconds", "0.5"}},
                                         EndlessCommand{"Cubin", {"cubin", "-o", "out", "--max-seconds", "0.5"}},
                                         EndlessCommand{"Sass", {"sass", "--max-seconds", "0.5"}},
                                         EndlessCommand{"Asm", {"asm", "--max-seconds", "0.5"}}),
                         [](const auto& command) { return std::string(command.param.name); });

TEST(TimeLimit, KillsAnAssemblerAndRemovesItsFiles) {
  const Scratch scratch;
  scratch.write("out", "old content");
  std::filesystem::create_directory(scratch.path("tmp"));
  std::filesystem::create_directories(scratch.path("cuda/bin"));
  std::filesystem::create_directories(scratch.path("cuda/lib64"));
  const std::string ptxas = scratch.write("cuda/bin/ptxas",
                                          "#!/bin/sh\n"
                                          "[ \"$1\" = --version ] && exit\n"
                                          "echo $$ >" +
                                              scratch.path("pid") + "\nexec sleep 1000000\n");
  ASSERT_EQ(chmod(ptxas.c_str(), 0755), 0);
  const Outcome outcome = runShell(
      "for n in 12 13; do echo no library >cuda/lib64/libnvJitLink.so.$n; done\n"
      "export TMPDIR=$PWD/tmp SRJIT_CUDA_HOME=$PWD/cuda LD_LIBRARY_PATH=$PWD/cuda/lib64\n"
      "exec \"$SRJIT\" cubin x0 -o out --max-seconds 2",
      scratch.path(""));
  EXPECT_EQ(outcome.status, 1) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("sr-jit: stopped after 2 s"));
  EXPECT_EQ(contentOf(scratch.path("out")), "old content");
  const pid_t child = std::stoi(contentOf(scratch.path("pid")));
  // An assembler that runs on makes this run into the timeout of ctest.
  while (isRunning(child)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_TRUE(isEmptyFolder(scratch.path("tmp")));
}

TEST(TimeLimit, DoesNothingToWhatIsInTime) {
  const Scratch scratch;
  const Outcome outcome = runCommand({"parse", "x0 + 1", "--max-seconds", "1000"}, scratch.path(""));
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(outcome.out, "x0 + 1\n");
  EXPECT_EQ(runCommand({"parse", "x0", "--max-seconds", "0"}, scratch.path("")).status, 2);
  EXPECT_EQ(runCommand({"parse", "x0", "--max-nodes", "-1"}, scratch.path("")).status, 2);
}

class ServeLimits : public testing::Test {
 protected:
  std::vector<nlohmann::json> answers(std::vector<std::string> more, const std::string& requests) {
    scratch_.write("table.csv", "x,y\n1,4\n2,7\n3,10\n4,13\n");
    std::vector<std::string> words = {"serve", "--data", "table.csv", "--target", "y", "--device", "cpu", "--quiet"};
    words.insert(words.end(), more.begin(), more.end());
    const Outcome outcome = runCommand(words, scratch_.path("."), requests);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    std::vector<nlohmann::json> list;
    std::istringstream stream(outcome.out);
    for (std::string line; std::getline(stream, line);) list.push_back(nlohmann::json::parse(line));
    EXPECT_FALSE(list.empty());
    if (!list.empty()) list.erase(list.begin());
    return list;
  }

  Scratch scratch_;
};

TEST_F(ServeLimits, OfNodesAreThoseOfEachRequest) {
  const auto all = answers({"--max-nodes", "3", "--max-call-nodes", "6"},
                           R"({"id":1,"op":"loss","expressions":["x + 1","x + 1 + x"]}
{"id":2,"op":"loss","expressions":["x + 1","x + 1","x"]}
{"id":3,"op":"predict","population":{"codes":[-1,-1,3,-1,3],"constants":[0,0,0,0,0],"offsets":[0,5]}}
{"id":4,"op":"simplify","expressions":["x + 1 + x"]}
{"id":5,"op":"loss","expressions":["x + 1"]}
)");
  ASSERT_EQ(all.size(), 5U);
  EXPECT_EQ(all[0]["failures"][0]["code"], "limit");
  EXPECT_EQ(all[0]["failures"][0]["expression"], 1);
  EXPECT_EQ(all[0]["failures"][0]["where"]["column"], 9);
  EXPECT_FALSE(all[0]["losses"][0].is_null());
  EXPECT_EQ(all[1]["error"]["code"], "limit");
  EXPECT_EQ(all[2]["failures"][0]["code"], "limit");
  EXPECT_EQ(all[3]["failures"][0]["code"], "limit");
  EXPECT_TRUE(all[4].contains("losses")) << "the server goes on";
}

TEST_F(ServeLimits, OfTimeAndBytesAreThoseOfEachRequest) {
  const auto late = answers({"--max-seconds", "1e-9"},
                            "{\"id\":1,\"op\":\"loss\",\"expressions\":[\"x\"]}\n{\"id\":2,\"op\":\"info\"}\n"
                            "{\"id\":3,\"op\":\"fit\",\"expressions\":[\"p0*x\"]}\n");
  ASSERT_EQ(late.size(), 3U);
  EXPECT_EQ(late[0]["id"], 1);
  EXPECT_EQ(late[0]["error"]["code"], "limit");
  EXPECT_THAT(late[0]["error"]["message"].get<std::string>(), HasSubstr("1e-09 s"));
  EXPECT_EQ(late[1]["rows"], 4);
  EXPECT_EQ(late[2]["error"]["code"], "limit");
  const auto large = answers({"--max-bytes", "60"}, "{\"op\":\"loss\",\"expressions\":[\"" + std::string(1000, 'x') +
                                                        "\"]}\n{\"op\":\"loss\",\"expressions\":[\"x\"]}\n");
  ASSERT_EQ(large.size(), 2U);
  EXPECT_EQ(large[0]["error"]["code"], "limit");
  EXPECT_TRUE(large[1].contains("losses"));
}

}  // namespace
}  // namespace srjit
