// --max-nodes, --max-bytes and --max-seconds: of every command that takes expressions, and of each request to a server.
#include <sys/stat.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "compiler/kernels/assembler.h"
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

/// Words of a command in which LLVM takes much longer than half a second for kLongestChain sines.
struct EndlessCommand {
  const char* name;
  std::vector<std::string> words;
};

void PrintTo(const EndlessCommand& command, std::ostream* stream) { *stream << command.name; }

class EndlessCommands : public testing::TestWithParam<EndlessCommand> {};

constexpr std::size_t kLongestChain = 300000;

/// A chain of so many sines.
std::string sinesOfSines(std::size_t count) {
  std::string text;
  for (std::size_t i = 0; i < count; ++i) text += "sin(";
  return text + "x0" + std::string(count, ')') + '\n';
}

// LLVM works at that time, so no assembler and none of its files are there: TimeLimit has those.
TEST_P(EndlessCommands, EndInTimeAndLeaveOutputsAlone) {
  const Scratch scratch;
  scratch.write("out", "old content");
  scratch.write("long.txt", sinesOfSines(kLongestChain));
  const std::vector<std::string> before = scratch.list();
  std::string words;
  for (const std::string& word : GetParam().words) words += " '" + word + "'";
  const Outcome outcome =
      runShell("exec \"$SRJIT\"" + words + " --max-length 1000000000 --exprs long.txt", scratch.path(""));
  EXPECT_EQ(outcome.status, 1) << outcome.err;
  EXPECT_EQ(outcome.err,
            "sr-jit: stopped after 0.5 s, the longest that a call may take; a larger max_seconds "
            "(--max-seconds) allows more\n");
  EXPECT_EQ(outcome.out, "");
  EXPECT_EQ(scratch.list(), before);
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

/// Writes a program that notes its number in the folder "pids" and then sleeps, after a line of its own; gives its
/// path.
std::string writeSleeper(const Scratch& scratch, const std::string& name, const char* line = "") {
  std::filesystem::create_directory(scratch.path("pids"));
  const std::string path =
      scratch.write(name, fmt::format("#!/bin/sh\n{}\necho >{}/$$\nexec sleep 100\n", line, scratch.path("pids")));
  EXPECT_EQ(chmod(path.c_str(), 0755), 0);
  return path;
}

/// The numbers of the sleepers that have started.
std::vector<pid_t> sleepersOf(const Scratch& scratch) {
  std::vector<pid_t> sleepers;
  for (const auto& entry : std::filesystem::directory_iterator(scratch.path("pids"))) {
    sleepers.push_back(std::stoi(entry.path().filename().string()));
  }
  return sleepers;
}

/// Waits for a process that was killed; kills one that was not.
void expectKilled(pid_t process) {
  for (int i = 0; i < 10000 && isRunning(process); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  if (!isRunning(process)) return;
  ADD_FAILURE() << "process " << process << " runs on";
  kill(process, SIGKILL);
}

TEST(TimeLimit, KillsAnAssemblerAndRemovesItsFiles) {
  const Scratch scratch;
  scratch.write("out", "old content");
  std::filesystem::create_directory(scratch.path("tmp"));
  std::filesystem::create_directories(scratch.path("cuda/bin"));
  std::filesystem::create_directories(scratch.path("cuda/lib64"));
  writeSleeper(scratch, "cuda/bin/ptxas", "[ \"$1\" = --version ] && exit");
  const Outcome outcome = runShell(
      "for n in 12 13; do echo no library >cuda/lib64/libnvJitLink.so.$n; done\n"
      "export TMPDIR=$PWD/tmp SRJIT_CUDA_HOME=$PWD/cuda LD_LIBRARY_PATH=$PWD/cuda/lib64\n"
      "exec \"$SRJIT\" cubin x0 -o out --max-seconds 10",
      scratch.path(""));
  EXPECT_EQ(outcome.status, 1) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("sr-jit: stopped after 10 s"));
  EXPECT_EQ(contentOf(scratch.path("out")), "old content");
  const std::vector<pid_t> sleepers = sleepersOf(scratch);
  EXPECT_EQ(sleepers.size(), 1U) << "the assembler has started";
  for (const pid_t sleeper : sleepers) expectKilled(sleeper);
  EXPECT_TRUE(isEmptyFolder(scratch.path("tmp")));
}

TEST(AbandonedPrograms, LetNoThreadGoOn) {
  const Scratch scratch;
  std::filesystem::create_directory(scratch.path("tmp"));
  const std::string sleeper = writeSleeper(scratch, "sleeper");
  constexpr std::size_t kThreads = 8;
  const int status = inChild([&] {
    setenv("TMPDIR", scratch.path("tmp").c_str(), 1);
    for (std::size_t i = 0; i < kThreads; ++i) {
      std::thread([&] {
        for (;;) (void)describeProgram(sleeper);
      }).detach();
    }
    while (sleepersOf(scratch).size() < kThreads) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    abandonPrograms();
    // Threads that would go on have the time to make files and start programs.
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    return 0;
  });
  EXPECT_EQ(status, 0);
  const std::vector<pid_t> sleepers = sleepersOf(scratch);
  EXPECT_EQ(sleepers.size(), kThreads) << "none starts later";
  for (const pid_t process : sleepers) expectKilled(process);
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
