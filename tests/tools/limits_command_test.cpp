// Long expressions in every command that takes some, and what --max-seconds ends.
#include <sys/stat.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>

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

class LimitsOfCommands : public testing::TestWithParam<LimitedCommand> {};

TEST_P(LimitsOfCommands, ShowComputeOrRefuseLongExpressions) {
  const Scratch scratch;
  scratch.write("table.csv", "x0,x1,x2,y\n1,2,3,4\n2,3,4,5\n0.5,1,2,3\n");
  std::vector<std::string> words = GetParam().words;
  words.insert(words.end(), {"--exprs", "-"});
  // Without a time limit of its own: what takes minutes ends by the timeout of ctest.
  for (const LongExpression& some : longExpressions()) {
    const Outcome outcome = runCommand(words, scratch.path(""), print(some.expression, Language::kInfix) + "\n");
    if (GetParam().status == kMachineFailure && outcome.status == kDone) continue;
    EXPECT_EQ(outcome.status, GetParam().status) << some.name << ": " << outcome.err.substr(0, 1000);
    EXPECT_THAT(outcome.err, HasSubstr(GetParam().message)) << some.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Command, LimitsOfCommands, testing::ValuesIn(kLimitedCommands),
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

}  // namespace
}  // namespace srjit
