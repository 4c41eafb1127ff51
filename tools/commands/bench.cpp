// The benchmarks are programs of their own beside this one: sr-jit-bench, so that the command does not need its
// library, and sr-jit-gpu-bench.
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
#include "tools/streams.h"

namespace srjit {
namespace {

struct ScenarioName {
  const char* name;
  const char* doc;
};
constexpr const char* kAllScenarios = "scenarios";
constexpr ScenarioName kScenarios[] = {
#define SRJIT_SCENARIO(id, name, seconds, data, doc) {name, doc},
#include "tools/bench/scenarios.def"
#undef SRJIT_SCENARIO
    {kAllScenarios, "all of these; also 'all'"},
};

struct BenchOptions {
  std::string filter;
  bool list = false;
  bool json = false;
};

/// Replaces this process (exec) by the program of this name in the same folder; returns only if that fails.
ExitStatus become(const std::string& name, std::vector<std::string> words, const char* hint) {
  std::error_code unknown;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", unknown);
  const std::string program = (self.parent_path() / name).string();
  words.insert(words.begin(), program);
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  restoreSignals();
  execv(program.c_str(), arguments.data());
  return report({Errc::kMachine, fmt::format("cannot start {}: {} ({})", program, std::strerror(errno), hint), {}});
}

ExitStatus runBenchmarks(const BenchOptions& options) {
  std::vector<std::string> words;
  if (!options.filter.empty()) words.push_back("--benchmark_filter=" + options.filter);
  if (options.list) words.emplace_back("--benchmark_list_tests=true");
  if (options.json) words.emplace_back("--benchmark_format=json");
  return become("sr-jit-bench", std::move(words), "it is built where Google Benchmark is installed");
}

}  // namespace

Runner defineBench(CLI::App& app) {
  auto options = std::make_shared<BenchOptions>();
  app.add_option("--filter", options->filter, "only benchmarks whose names match")->type_name("REGEX");
  app.add_flag("--list", options->list, "list the benchmarks there are");
  addJsonOption(app, options->json);
  // Its options are the other program's.
  CLI::App* const gpu = app.add_subcommand("gpu", "measure a GPU: the figures of docs/history/measurements.md");
  gpu->prefix_command();
  gpu->set_help_flag();
  std::vector<CLI::App*> scenarios;
  for (const ScenarioName& scenario : kScenarios) {
    CLI::App* const added = app.add_subcommand(scenario.name, scenario.doc);
    added->prefix_command();
    added->set_help_flag();
    if (added->get_name() == kAllScenarios) added->alias("all");
    scenarios.push_back(added);
  }
  app.footer(
      "Examples:\n"
      "  sr-jit bench --list\n"
      "  sr-jit bench --filter 'evaluate/mixed'\n"
      "  sr-jit bench gpu --json figures.json\n"
      "  sr-jit bench gpu --help\n"
      "  sr-jit bench thesis-1 --result losses --json thesis-1.json\n"
      "  sr-jit bench scenarios --quick --device cpu --json all.json");
  return [options, gpu, scenarios] {
    constexpr const char* kHint = "it is built beside sr-jit";
    if (gpu->parsed()) return become("sr-jit-gpu-bench", gpu->remaining(), kHint);
    for (const CLI::App* const scenario : scenarios) {
      if (!scenario->parsed()) continue;
      std::vector<std::string> words = scenario->remaining();
      words.insert(words.begin(), scenario->get_name() == kAllScenarios ? "all" : scenario->get_name());
      return become("sr-jit-gpu-bench", std::move(words), kHint);
    }
    return runBenchmarks(*options);
  };
}

}  // namespace srjit
