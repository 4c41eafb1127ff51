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
    {"auto", "the tier that is chosen against both", benchAuto},
};

struct Options {
  std::string json, device = "cuda:0", commit, second_process;
  std::vector<std::string> only;
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

ExitStatus runParts(const Options& options) {
  // Nothing is measured where the device cannot be used.
  if (const auto engine = Engine::create({.device = options.device, .cache_directory = ""}); !engine) {
    return report(engine.error());
  }
  const Scratch scratch;
  GpuReport results(describeMachine(options.device, options.commit), options.json);
  const BenchContext context{.device = options.device,
                             .scratch = scratch.path(),
                             .quick = options.quick,
                             .seconds = options.seconds > 0 ? options.seconds
                                        : options.quick     ? 20
                                                            : 220,
                             .report = &results};
  bool complete = true;
  for (const BenchPart& part : kParts) {
    if (!options.only.empty() && std::ranges::find(options.only, part.name) == options.only.end()) continue;
    if (context.left() <= 0) {
      complete = false;
      results.addFault(part.name, fmt::format("not run: the {} s were up", context.seconds));
      continue;
    }
    const Stopwatch watch;
    if (const Status done = runPart(part, context); !done) results.addFault(part.name, done.error().message);
    std::fprintf(stderr, "%-12s %.1f s\n", part.name, watch.seconds());
    if (const Status saved = results.save(false); !saved) return report(saved.error());
  }
  if (const Status saved = results.save(complete); !saved) return report(saved.error());
  std::fputs(results.table().c_str(), stdout);
  return results.hasFaults() ? kMachineFailure : kDone;
}

int runCommand(int argc, const char* const* argv) {
  CLI::App app("Measures sr-jit on a GPU: every figure is the median of several samples.", "sr-jit-gpu-bench");
  Options options;
  std::string parts;
  for (const BenchPart& part : kParts) parts += fmt::format("  {:<12} {}\n", part.name, part.doc);
  std::vector<std::string> names;
  for (const BenchPart& part : kParts) names.emplace_back(part.name);
  app.add_option("--json", options.json, "write everything to FILE, after every part")->type_name("FILE");
  app.add_option("--only", options.only, "only this part; may be given several times")
      ->type_name("NAME")
      ->check(CLI::IsMember(names));
  app.add_flag("--quick", options.quick, "fewer samples, smaller populations for the compiler, a smaller grid");
  app.add_option("--device", options.device, "cuda:N, or cpu to try this program out")->capture_default_str();
  app.add_option("--seconds", options.seconds, "no part begins after SECONDS (220; quick 20)")->type_name("SECONDS");
  app.add_option("--commit", options.commit, "what was built, for the report")->type_name("NAME");
  app.add_option("--second-process", options.second_process, "")->group("");
  app.add_option("--expressions", options.expressions, "")->group("");
  app.footer("Parts:\n" + parts + "Exit status: 0 all parts ran; 2 wrong usage; 3 no device, or a part failed.");
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
