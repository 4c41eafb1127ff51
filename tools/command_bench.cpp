// The benchmarks are a program of their own beside this one, sr-jit-bench, so that the command does not need their
// library.
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "tools/commands.h"
#include "tools/options.h"

namespace srjit {
namespace {

struct BenchOptions {
  std::string filter;
  bool list = false;
  bool json = false;
};

ExitStatus runBenchmarks(const BenchOptions& options) {
  std::error_code unknown;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", unknown);
  const std::string program = (self.parent_path() / "sr-jit-bench").string();
  std::vector<std::string> words = {program};
  if (!options.filter.empty()) words.push_back("--benchmark_filter=" + options.filter);
  if (options.list) words.emplace_back("--benchmark_list_tests=true");
  if (options.json) words.emplace_back("--benchmark_format=json");
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  execv(program.c_str(), arguments.data());
  return report({Errc::kMachine,
                 fmt::format("cannot start {}: {} (it is built where Google Benchmark is installed)", program,
                             std::strerror(errno)),
                 {}});
}

}  // namespace

Runner defineBench(CLI::App& app) {
  auto options = std::make_shared<BenchOptions>();
  app.add_option("--filter", options->filter, "only benchmarks whose names match")->type_name("REGEX");
  app.add_flag("--list", options->list, "list the benchmarks there are");
  addJsonOption(app, options->json);
  app.footer(
      "Examples:\n"
      "  sr-jit bench --list\n"
      "  sr-jit bench --filter 'evaluate/mixed'");
  return [options] { return runBenchmarks(*options); };
}

}  // namespace srjit
