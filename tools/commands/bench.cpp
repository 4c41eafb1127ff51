// The benchmark is a program of its own beside this one, sr-jit-bench.
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "tools/commands.h"
#include "tools/options.h"
#include "tools/report.h"

namespace srjit {
namespace {

/// Replaces this process (exec) by the benchmark. Throws ErrorException if that fails.
[[noreturn]] ExitStatus becomeBenchmark(std::vector<std::string> words) {
  std::error_code unknown;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", unknown);
  const std::string program = (self.parent_path() / "sr-jit-bench").string();
  words.insert(words.begin(), program);
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  restoreSignals();
  execv(program.c_str(), arguments.data());
  throwError(failure(Errc::kMachine, "cannot start {}: {} (it is built beside sr-jit)", program, std::strerror(errno)));
}

}  // namespace

Runner defineBench(CLI::App& app) {
  // Scenarios and options are the other program's.
  app.prefix_command();
  std::string text = "Scenarios, of which each has the options of sr-jit bench all --help:\n";
#define SRJIT_SCENARIO(id, name, seconds, data, doc) text += fmt::format("  {:<15} {}\n", name, doc);
#include "tools/bench/scenarios.def"
#undef SRJIT_SCENARIO
  app.footer(text +
             "  all             all of these; also 'scenarios'\n"
             "Examples:\n"
             "  sr-jit bench thesis-1 --result losses --json thesis-1.json\n"
             "  sr-jit bench modes fresh --device cpu\n"
             "  sr-jit bench all --quick --device cpu --json all.json");
  return [&app] { return becomeBenchmark(app.remaining()); };
}

}  // namespace srjit
