// sr-jit-gpu-bench: measures the figures of docs/history/measurements.md on a GPU. `sr-jit bench gpu` starts it.
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
#include <optional>

#include <fmt/format.h>

#include "runtime/cache/file_trust.h"
#include "runtime/cuda/context.h"
#include "tools/bench/gpu_context.h"
#include "tools/report.h"
#include "tools/streams.h"
#include "tools/usage.h"

namespace srjit {
namespace {

constexpr double kModesSeconds = 40, kFunctionsSeconds = 80;
constexpr BenchPart kParts[] = {
    {"interpreter", "rates of the interpreter and of the stack kernel", benchInterpreter},
    {"small", "250,000 small expressions", benchSmall},
    {"text", "text to encoded programs", benchText},
    {"steady", "new parameters for one population, repeatedly", benchSteady},
    {"overlap", "encoding of new populations, overlapped with evaluation", benchOverlap},
    {"compiled", "rates of machine code", benchCompiled},
    {"compiling", "time to compile machine code", benchCompiling},
    {"second", "start-up of a second process, from the disk cache", benchSecondProcess},
    {"direct", "machine code of the direct tier", benchDirect},
    {"modes", "rates in each precision and mode, and of the processor", benchModes, kModesSeconds},
    {"auto", "Tier::kAuto against both forced tiers", benchAuto},
    {"functions", "functions, one at a time, against those of CUDA's library", benchFunctions, kFunctionsSeconds},
};

constexpr BenchPart kScenarios[] = {
#define SRJIT_SCENARIO(id, name, seconds, data, doc) {name, doc, bench##id, seconds, data},
#include "tools/bench/scenarios.def"
#undef SRJIT_SCENARIO
};
constexpr double kQuickSeconds = 8;

struct Options {
  std::string json, device, commit, second_process, results = "both", data, export_folder;
  std::vector<std::string> only, scenarios;
  bool no_baselines = false;
  std::size_t expressions = 0;
  double seconds = 0;
  bool quick = false;
};

/// A directory for this run, removed at its end. The constructor first removes directories of this user's runs that
/// were killed. Only this user has access, since code is loaded from it. Throws std::filesystem::filesystem_error.
class Scratch {
 public:
  Scratch() {
    const std::filesystem::path folder = std::filesystem::temp_directory_path();
    const std::string prefix = "srjit-gpu-bench-";
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
  ~Scratch() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  std::string path(const std::string& name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

/// The selected parts or scenarios.
std::vector<BenchPart> chosenParts(const Options& options) {
  std::vector<BenchPart> chosen;
  const auto choose = [&](std::span<const BenchPart> parts, const std::vector<std::string>& names, bool all) {
    for (const BenchPart& part : parts) {
      if (all || std::ranges::find(names, part.name) != names.end()) chosen.push_back(part);
    }
  };
  if (options.scenarios.empty()) {
    choose(kParts, options.only, options.only.empty());
  } else {
    choose(kScenarios, options.scenarios, std::ranges::find(options.scenarios, "all") != options.scenarios.end());
  }
  return chosen;
}

double secondsOf(const Options& options) {
  if (options.seconds > 0) return options.seconds;
  if (options.scenarios.empty()) return options.quick ? 36 : 340;
  return options.quick ? 60 : 600;
}

/// Why these options cannot be combined; empty if they can.
std::string conflictOf(const Options& options, std::span<const BenchPart> chosen) {
  const bool has_scenarios = !options.scenarios.empty();
  if (has_scenarios && !options.only.empty()) return "--only selects parts, which cannot be combined with scenarios";
  if (options.scenarios.size() > 1 && std::ranges::find(options.scenarios, "all") != options.scenarios.end()) {
    return "'all' selects all scenarios, so no other can be named";
  }
  if (!options.data.empty()) {
    if (!has_scenarios) return "--data requires a scenario";
    for (const BenchPart& part : chosen) {
      if (!part.reads_data) return fmt::format("--data is not read by the scenario '{}'", part.name);
    }
  }
  if (!options.export_folder.empty() &&
      std::ranges::none_of(chosen, [](const BenchPart& part) { return part.run == benchGradients; })) {
    return "--export requires the scenario 'gradients'";
  }
  return {};
}

/// The name of the device to use. Parts need a GPU; scenarios run on the processor if there is none.
Result<std::string> findDevice(const Options& options) {
  const std::string wanted = !options.device.empty() ? options.device : options.scenarios.empty() ? "cuda:0" : "auto";
  const auto engine = Engine::create({.device = wanted, .cache_directory = ""});
  if (!engine) return engine.error();
  return engine->options().device;
}

ExitStatus runParts(const Options& options, std::span<const BenchPart> chosen) {
  // Fails before the first measurement if the device is unusable or the report is not writable.
  const auto device = findDevice(options);
  if (!device) return report(device.error());
  GpuReport results(describeMachine(*device, options.commit), options.json);
  if (const Status saved = results.save(false); !saved) return report(saved.error());
  std::fputs(results.heading().c_str(), stdout);
  const Scratch scratch;
  const Stopwatch started;
  const std::string warm = scratch.path("warm");
  if (const Status done = caught([&] { warmCache(*device, warm); }); !done) {
    results.addFault("warm-up", done.error().message);
  }
  if (*device != "cpu") results.attach("warm-up", {{"seconds", started.seconds()}});
  const BenchContext all{.device = *device,
                         .scratch = {},
                         .warm = std::filesystem::exists(warm) ? warm : "",
                         .quick = options.quick,
                         .seconds = secondsOf(options),
                         .started = started,
                         .report = &results,
                         .losses = options.results != "predictions",
                         .predictions = options.results != "losses",
                         .baselines = !options.no_baselines,
                         .data_file = options.data,
                         .export_folder = options.export_folder};
  bool complete = true, is_saved = true;
  for (const BenchPart& part : chosen) {
    if (all.left() <= 0) {
      complete = false;
      results.addFault(part.name, fmt::format("not run: the {} s were up", all.seconds));
      continue;
    }
    const Stopwatch watch;
    BenchContext context = all;
    context.scratch = scratch.path(part.name);
    if (const std::error_code failed = makePrivateDirectories(context.scratch); failed) {
      results.addFault(part.name, fmt::format("not run: cannot make {}: {}", context.scratch, failed.message()));
      continue;
    }
    if (part.seconds > 0) {
      context.seconds = std::min(options.quick ? kQuickSeconds : part.seconds, all.left());
      context.started = {};
    }
    if (const Status done = caught([&] { part.run(context); }); !done) {
      results.addFault(part.name, done.error().message);
    }
    tell(fmt::format("{:<14} {:.1f} s\n", part.name, watch.seconds()));
    std::fputs(results.newRows().c_str(), stdout);
    std::fflush(stdout);
    const Status saved = results.save(complete && &part == &chosen.back());
    is_saved = saved.ok();
    if (!saved) report(saved.error());
  }
  std::fputs(results.newRows().c_str(), stdout);
  if (!complete) is_saved = results.save(false).ok();
  return results.hasFaults() || !is_saved ? kMachineFailure : kDone;
}

void addOptions(CLI::App& app, Options& options) {
  std::string text = "Scenarios:\n";
  std::vector<std::string> names, scenarios = {"all"};
  for (const BenchPart& part : kScenarios) {
    text += fmt::format("  {:<15} {}\n", part.name, part.doc);
    scenarios.emplace_back(part.name);
  }
  text += "Parts, where no scenario is named:\n";
  for (const BenchPart& part : kParts) {
    text += fmt::format("  {:<15} {}\n", part.name, part.doc);
    names.emplace_back(part.name);
  }
  app.add_option("scenario", options.scenarios, "scenarios to run, in their own order, or all")
      ->type_name("SCENARIO")
      ->check(CLI::IsMember(scenarios));
  app.add_option("--result", options.results, "scenarios: the results to copy to the host")
      ->type_name("losses|predictions|both")
      ->check(CLI::IsMember({"losses", "predictions", "both"}))
      ->capture_default_str();
  app.add_option("--data", options.data, "thesis-1 to -3: two columns and the target, instead of generated ones")
      ->type_name("FILE");
  app.add_option("--export", options.export_folder,
                 "gradients: write the fits to FOLDER, as `sr-jit fit` reads them: expressions with starts, and data")
      ->type_name("FOLDER");
  app.add_flag("--no-baselines", options.no_baselines, "scenarios: without the published designs");
  app.add_option("--json", options.json, "write everything to FILE, after every part")->type_name("FILE");
  app.add_option("--only", options.only, "run only this part; repeatable")
      ->type_name("NAME")
      ->check(CLI::IsMember(names));
  app.add_flag("--quick", options.quick, "fewer samples, smaller populations for the compiler, a smaller grid");
  app.add_option("--device", options.device,
                 "cpu, cuda:N, or auto: a GPU if there is one, else cpu (scenarios auto, parts cuda:0)");
  app.add_option("--seconds", options.seconds, "start nothing after SECONDS (parts 340, scenarios 600; quick 36, 60)")
      ->type_name("SECONDS")
      ->check(CLI::PositiveNumber);
  app.add_option("--commit", options.commit, "the commit of the build, for the report")->type_name("NAME");
  app.add_option("--second-process", options.second_process, "")->group("");
  app.add_option("--expressions", options.expressions, "")->group("");
  app.footer(text + "Exit status: 0 all parts ran; 2 wrong usage; 3 no device, or a part failed.");
}

int runCommand(int argc, const char* const* argv) {
  CLI::App app(
      "Measures sr-jit on a GPU, and scenarios also on the processor (--device cpu): every figure is the median of "
      "several samples.",
      "sr-jit-gpu-bench");
  Options options;
  addOptions(app, options);
  if (const std::optional<ExitStatus> end = parseCommandLine(app, argc, argv)) return *end;
  // Disables the driver's cache of code compiled from PTX, so that compilation is timed in every run.
  setenv("CUDA_CACHE_DISABLE", "1", 1);
  ExitStatus status = kDone;
  const Status done = caught([&] {
    if (!options.second_process.empty()) {
      runSecondProcess(options.device, options.second_process, options.expressions);
      return;
    }
    const std::vector<BenchPart> chosen = chosenParts(options);
    if (const std::string conflict = conflictOf(options, chosen); !conflict.empty()) {
      tell("sr-jit: " + conflict + '\n');
      status = kWrongUsage;
      return;
    }
    status = runParts(options, chosen);
  });
  return done ? status : report(done.error());
}

}  // namespace
}  // namespace srjit

int main(int argc, char** argv) {
  return srjit::runMain([&] { return srjit::runCommand(argc, argv); });
}
