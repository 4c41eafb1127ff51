// sr-jit-gpu-bench: the figures of docs/performance.md for a GPU. `sr-jit bench gpu` starts it.
#include <CLI/CLI.hpp>

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <filesystem>

#include <fmt/format.h>

#include "runtime/cuda_context.h"
#include "tools/bench/gpu_bench.h"
#include "tools/report.h"

namespace srjit {
namespace {

constexpr BenchPart kParts[] = {
    {"interpreter", "rates of the interpreter, and the stack kernel to compare with", benchInterpreter},
    {"small", "250,000 small expressions", benchSmall},
    {"text", "text to encoded programs", benchText},
    {"steady", "new parameters again and again", benchSteady},
    {"overlap", "new populations beside the device's work", benchOverlap},
    {"compiled", "rates of machine code", benchCompiled},
    {"compiling", "what machine code costs", benchCompiling},
    {"second", "what a second process pays", benchSecondProcess},
    {"direct", "machine code without an assembler", benchDirect},
    {"auto", "the tier that is chosen against both", benchAuto},
};

constexpr BenchPart kScenarios[] = {
#define SRJIT_SCENARIO(id, name, seconds, doc) {name, doc, bench##id, seconds},
#include "tools/bench/scenarios/scenarios.def"
#undef SRJIT_SCENARIO
};
constexpr double kQuickSeconds = 8;

struct Options {
  std::string json, device = "cuda:0", commit, second_process, results = "both", data;
  std::vector<std::string> only, scenarios;
  bool no_baselines = false;
  std::size_t expressions = 0;
  double seconds = 0;
  bool quick = false;
};

/// A directory for this run, removed at its end.
class Scratch {
 public:
  Scratch() : path_(std::filesystem::temp_directory_path() / fmt::format("srjit-gpu-bench-{}", getpid())) {
    std::filesystem::create_directories(path_);
  }
  ~Scratch() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

Status runPart(const BenchPart& part, const BenchContext& context) {
  try {
    part.run(context);
  } catch (const BenchFailure& failure) {
    return failure.error;
  } catch (const CudaFailure& failure) {
    return failure.error();
  } catch (const std::exception& failure) {
    return Error{Errc::kMachine, failure.what(), {}};
  }
  return okStatus();
}

/// The parts or scenarios that were asked for.
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
  if (options.scenarios.empty()) return options.quick ? 20 : 220;
  return options.quick ? 60 : 420;
}

ExitStatus runParts(const Options& options) {
  // Nothing is measured where the device cannot be used.
  if (const auto engine = Engine::create({.device = options.device, .cache_directory = ""}); !engine) {
    return report(engine.error());
  }
  const Scratch scratch;
  GpuReport results(describeMachine(options.device, options.commit), options.json);
  const BenchContext all{.device = options.device,
                         .scratch = scratch.path(),
                         .quick = options.quick,
                         .seconds = secondsOf(options),
                         .report = &results,
                         .losses = options.results != "predictions",
                         .predictions = options.results != "losses",
                         .baselines = !options.no_baselines,
                         .data_file = options.data};
  bool complete = true;
  for (const BenchPart& part : chosenParts(options)) {
    if (all.left() <= 0) {
      complete = false;
      results.addFault(part.name, fmt::format("not run: the {} s were up", all.seconds));
      continue;
    }
    const Stopwatch watch;
    BenchContext context = all;
    if (part.seconds > 0) {
      context.seconds = std::min(options.quick ? kQuickSeconds : part.seconds, all.left());
      context.started = {};
    }
    if (const Status done = runPart(part, context); !done) results.addFault(part.name, done.error().message);
    std::fprintf(stderr, "%-14s %.1f s\n", part.name, watch.seconds());
    if (const Status saved = results.save(false); !saved) return report(saved.error());
  }
  if (const Status saved = results.save(complete); !saved) return report(saved.error());
  std::fputs(results.table().c_str(), stdout);
  return results.hasFaults() ? kMachineFailure : kDone;
}

int runCommand(int argc, const char* const* argv) {
  CLI::App app("Measures sr-jit on a GPU: every figure is the median of several samples.", "sr-jit-gpu-bench");
  Options options;
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
  app.add_option("--result", options.results, "of scenarios: what comes back to the host")
      ->type_name("losses|predictions|both")
      ->check(CLI::IsMember({"losses", "predictions", "both"}))
      ->capture_default_str();
  app.add_option("--data", options.data, "of thesis-1 to -3: two columns and the target, instead of made-up ones")
      ->type_name("FILE");
  app.add_flag("--no-baselines", options.no_baselines, "of scenarios: without the published designs");
  app.add_option("--json", options.json, "write everything to FILE, after every part")->type_name("FILE");
  app.add_option("--only", options.only, "only this part; may be given several times")
      ->type_name("NAME")
      ->check(CLI::IsMember(names));
  app.add_flag("--quick", options.quick, "fewer samples, smaller populations for the compiler, a smaller grid");
  app.add_option("--device", options.device, "cuda:N, or cpu to try this program out")->capture_default_str();
  app.add_option("--seconds", options.seconds, "nothing begins after SECONDS (parts 220, scenarios 420; quick 20, 60)")
      ->type_name("SECONDS");
  app.add_option("--commit", options.commit, "what was built, for the report")->type_name("NAME");
  app.add_option("--second-process", options.second_process, "")->group("");
  app.add_option("--expressions", options.expressions, "")->group("");
  app.footer(text + "Exit status: 0 all parts ran; 2 wrong usage; 3 no device, or a part failed.");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kDone : kWrongUsage;
  }
  if (options.second_process.empty()) return runParts(options);
  try {
    runSecondProcess(options.device, options.second_process, options.expressions);
  } catch (const BenchFailure& failure) {
    return report(failure.error);
  }
  return kDone;
}

}  // namespace
}  // namespace srjit

int main(int argc, char** argv) { return srjit::runCommand(argc, argv); }
