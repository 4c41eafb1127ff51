// sr-jit-bench: runs scenarios, and reports their figures. `sr-jit bench` starts it.
#include <CLI/CLI.hpp>

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <numeric>
#include <optional>

#include <fmt/format.h>

#include "runtime/cache/file_trust.h"
#include "tools/bench/work.h"
#include "tools/options.h"
#include "tools/report.h"

namespace srjit {
namespace {

/// One row of scenarios.def.
struct Scenario {
  const char* name;
  double seconds;
  bool reads_data;
  const char* doc;
  void (*run)(const Bench& bench);
};

constexpr Scenario kScenarios[] = {
#define SRJIT_SCENARIO(id, name, seconds, data, doc) {name, seconds, data, doc, bench##id},
#include "tools/bench/scenarios.def"
#undef SRJIT_SCENARIO
};
constexpr double kAllSeconds = 600, kQuickSeconds = 60, kQuickScenarioSeconds = 8;

struct RunOptions {
  std::string json, device = "auto", commit, results = "both", data, export_folder;
  std::vector<std::string> scenarios;
  bool no_baselines = false, quick = false;
  double seconds = 0;
};

/// A directory for this run, removed at its end. The constructor first removes directories of this user's runs that
/// were killed. Only this user has access, since code is loaded from it. Throws std::filesystem::filesystem_error.
class ScratchFolder {
 public:
  ScratchFolder() {
    const std::filesystem::path folder = std::filesystem::temp_directory_path();
    const std::string prefix = "srjit-bench-";
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      const std::string name = entry.path().filename().string();
      if (!name.starts_with(prefix)) continue;
      pid_t owner = 0;
      const auto [end, failure] = std::from_chars(name.data() + prefix.size(), name.data() + name.size(), owner);
      const bool is_dead = failure == std::errc() && std::string_view(end).starts_with('-') && owner > 0 &&
                           kill(owner, 0) != 0 && errno == ESRCH;
      struct stat facts{};
      const bool is_own = lstat(entry.path().c_str(), &facts) == 0 && facts.st_uid == geteuid();
      std::error_code ignored;
      if (is_dead && is_own) std::filesystem::remove_all(entry.path(), ignored);
    }
    std::string path = (folder / fmt::format("{}{}-XXXXXX", prefix, getpid())).string();
    if (mkdtemp(path.data()) == nullptr) {
      throw std::filesystem::filesystem_error("cannot make a directory", path, {errno, std::generic_category()});
    }
    path_ = path;
  }
  ~ScratchFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  std::string path(const std::string& name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

bool isAll(const RunOptions& options) {
  return options.scenarios.empty() ||
         std::ranges::any_of(options.scenarios, [](const auto& name) { return name == "all" || name == "scenarios"; });
}

std::vector<Scenario> chosenScenarios(const RunOptions& options) {
  std::vector<Scenario> chosen;
  for (const Scenario& scenario : kScenarios) {
    const bool is_named = std::ranges::find(options.scenarios, scenario.name) != options.scenarios.end();
    if (isAll(options) || is_named) chosen.push_back(scenario);
  }
  return chosen;
}

/// Why these options cannot be combined; empty if they can.
std::string conflictOf(const RunOptions& options, std::span<const Scenario> chosen) {
  if (options.scenarios.size() > 1 && isAll(options)) return "'all' selects all scenarios, so no other can be named";
  if (!options.data.empty()) {
    for (const Scenario& scenario : chosen) {
      if (!scenario.reads_data) return fmt::format("--data is not read by the scenario '{}'", scenario.name);
    }
  }
  const bool has_fits = std::ranges::any_of(chosen, [](const Scenario& s) { return s.run == benchGradients; });
  if (!options.export_folder.empty() && !has_fits) return "--export requires the scenario 'gradients'";
  return {};
}

/// Runs one scenario in at most `seconds`.
void runScenario(const Scenario& scenario, Bench bench, double seconds) {
  const Stopwatch watch;
  bench.scenario = scenario.name;
  bench.seconds = seconds;
  bench.started = {};
  if (const std::error_code failed = makePrivateDirectories(bench.scratch); failed) {
    return bench.report->addFault(scenario.name,
                                  fmt::format("not run: cannot make {}: {}", bench.scratch, failed.message()));
  }
  const Status done = caught([&] { scenario.run(bench); });
  if (!done) bench.report->addFault(scenario.name, done.error().message);
  tell(fmt::format("{:<14} {:.1f} s\n", scenario.name, watch.seconds()));
}

ExitStatus runScenarios(const RunOptions& options, std::span<const Scenario> chosen) {
  // Fails before the first measurement if the device is unusable or the report is not writable.
  const auto engine = Engine::create({.device = options.device, .cache_directory = ""});
  if (!engine) return report(engine.error());
  const std::string device = engine->options().device;
  Report results(describeMachine(device, options.commit), options.json);
  if (const Status saved = results.save(false); !saved) return report(saved.error());
  std::fputs(results.heading().c_str(), stdout);
  const ScratchFolder scratch;
  const Bench all{.scenario = "warm-up",
                  .device = device,
                  .scratch = {},
                  .warm = device == "cpu" ? "" : scratch.path("warm"),
                  .quick = options.quick,
                  .seconds = options.seconds > 0 ? options.seconds
                             : options.quick     ? kQuickSeconds
                                                 : kAllSeconds,
                  .report = &results,
                  .losses = options.results != "predictions",
                  .predictions = options.results != "losses",
                  .designs = !options.no_baselines,
                  .data_file = options.data,
                  .export_folder = options.export_folder};
  if (all.onGpu()) {
    if (const Status done = caught([&] { warmCache(device, all.warm); }); !done) {
      results.addFault(all.scenario, done.error().message);
    }
    all.add({"interpreters and the self-test of direct code"}, "time to make them", "s", {all.started.seconds()});
  }
  const auto limitOf = [&](const Scenario& scenario) {
    return options.quick ? kQuickScenarioSeconds : scenario.seconds;
  };
  double limits = 0;
  for (const Scenario& scenario : chosen) limits += limitOf(scenario);
  bool complete = true, is_saved = true;
  for (const Scenario& scenario : chosen) {
    const double limit = limitOf(scenario), share = limit / std::exchange(limits, limits - limit);
    if (all.left() <= 0) {
      complete = false;
      results.addFault(scenario.name, fmt::format("not run: the {} s were up", all.seconds));
      continue;
    }
    Bench bench = all;
    bench.scratch = scratch.path(scenario.name);
    runScenario(scenario, bench, std::min(limit, all.left() * share));
    const Status saved = results.save(complete && scenario.run == chosen.back().run);
    is_saved = saved.ok();
    if (!saved) report(saved.error());
  }
  if (!complete) is_saved = results.save(false).ok();
  return results.hasFaults() || !is_saved ? kMachineFailure : kDone;
}

void addOptions(CLI::App& app, RunOptions& options) {
  std::string text = "Scenarios:\n";
  std::vector<std::string> names = {"all", "scenarios"};
  for (const Scenario& scenario : kScenarios) {
    text += fmt::format("  {:<15} {}\n", scenario.name, scenario.doc);
    names.emplace_back(scenario.name);
  }
  app.add_option("scenario", options.scenarios, "scenarios to run, in their own order; without any, or with all: all")
      ->type_name("SCENARIO")
      ->check(CLI::IsMember(names));
  app.add_option("--result", options.results, "the results to copy to the host")
      ->type_name("losses|predictions|both")
      ->check(CLI::IsMember({"losses", "predictions", "both"}))
      ->capture_default_str();
  app.add_option("--data", options.data, "thesis-1 to -3: two columns and the target, instead of generated ones")
      ->type_name("FILE");
  app.add_option("--export", options.export_folder,
                 "gradients: write the fits to FOLDER, as `sr-jit fit` reads them: expressions with starts, and data")
      ->type_name("FOLDER");
  app.add_flag("--no-baselines", options.no_baselines, "without the published designs");
  app.add_option("--json", options.json, "write everything to FILE, after every scenario")->type_name("FILE");
  app.add_option("--only", options.scenarios, "run this scenario; repeatable")
      ->type_name("NAME")
      ->check(CLI::IsMember(names));
  app.add_flag("--quick", options.quick, "few samples of small sizes");
  app.add_option("--device", options.device, "cpu, cuda:N, or auto: a GPU if there is one, else cpu")
      ->capture_default_str();
  app.add_option("--seconds", options.seconds, "start nothing after SECONDS (600, quick 60)")
      ->type_name("SECONDS")
      ->check(CLI::PositiveNumber);
  app.add_option("--commit", options.commit, "the commit of the build, for the report")->type_name("NAME");
  app.footer(text + "Exit status: 0 all scenarios ran; 2 wrong usage; 3 no device, or a scenario failed.");
}

int runCommand(int argc, const char* const* argv) {
  CLI::App app(
      "Measures sr-jit on a GPU or on the processor (--device cpu): every figure is the median of several samples.",
      "sr-jit-bench");
  RunOptions options;
  addOptions(app, options);
  if (const std::optional<ExitStatus> end = parseCommandLine(app, argc, argv)) return *end;
  // Disables the driver's cache of code compiled from PTX, so that compilation is timed in every run.
  setenv("CUDA_CACHE_DISABLE", "1", 1);
  const std::vector<Scenario> chosen = chosenScenarios(options);
  if (const std::string conflict = conflictOf(options, chosen); !conflict.empty()) {
    tell("sr-jit: " + conflict + '\n');
    return kWrongUsage;
  }
  ExitStatus status = kDone;
  const Status done = caught([&] { status = runScenarios(options, chosen); });
  return done ? status : report(done.error());
}

}  // namespace
}  // namespace srjit

int main(int argc, char** argv) {
  return srjit::runMain([&] { return srjit::runCommand(argc, argv); });
}
