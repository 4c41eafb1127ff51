// Parts about machine code: its rates, its compile time, and the start-up of a second process.
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include <fmt/format.h>

#include "tools/bench/gpu_context.h"

extern char** environ;  // NOLINT: POSIX

namespace srjit {
namespace {

constexpr std::size_t kCompiledExpressions = 256, kCompiledRows = 1000000;
constexpr std::size_t kManyExpressions = 4096, kManyRows = 10860;

/// Runs a second process and parses its JSON output.
nlohmann::ordered_json runChild(const BenchContext& context, const std::string& cache, std::size_t expressions) {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  std::vector<std::string> words = {
      self, "--second-process", cache, "--device", context.device, "--expressions", std::to_string(expressions)};
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const auto fail = [](int code, const char* what) {
    return BenchFailure{{Errc::kMachine, fmt::format("{} failed: {}", what, std::strerror(code)), {}}};
  };
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw fail(errno, "pipe2");
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  pid_t child = 0;
  const int code = posix_spawn(&child, self.c_str(), &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  std::string text;
  char buffer[4096];
  if (code == 0) {
    for (ssize_t n = 0; (n = read(ends[0], buffer, sizeof buffer)) > 0;)
      text.append(buffer, static_cast<std::size_t>(n));
  }
  close(ends[0]);
  if (code != 0) throw fail(code, "posix_spawn");
  int status = 0;
  waitpid(child, &status, 0);
  auto json = nlohmann::ordered_json::parse(text, nullptr, false);
  if (status != 0 || json.is_discarded()) {
    throw BenchFailure{{Errc::kMachine, fmt::format("the second process failed (status {})", status), {}}};
  }
  return json;
}

std::size_t manyExpressions(const BenchContext& context) { return context.quick ? 256 : kManyExpressions; }

}  // namespace

void benchCompiled(const BenchContext& context) {
  const std::size_t rows = context.onGpu() ? kCompiledRows : kCompiledRows / 20;
  const BenchData data(kBenchColumns, rows);
  const Engine engine = context.engine(Math::kFast);
  const Dataset uploaded = must(engine.upload(data.view()));
  std::vector<float> out(kCompiledExpressions * rows);
  for (const std::string population : {"mixed", "arithmetic"}) {
    const std::vector<Expression> expressions = populationOf(population, kCompiledExpressions);
    const Program program = engine.compile(expressions, {.tier = Tier::kCompile});
    const double nodes = nodesOf(expressions);
    const auto predictions = kernelRates(context, engine, program, uploaded, nodes, 7, 6, out);
    const auto losses = kernelRates(context, engine, program, uploaded, nodes, 15, 2);
    std::vector<double> ratios;
    for (const double rate : losses) ratios.push_back(medianOf(predictions) / rate);
    const std::string what = fmt::format("compiled, f32 fast, {} x {} {}, ", kCompiledExpressions, rows, population);
    const ProgramStatus status = program.status();
    const std::string note =
        fmt::format("{} of {} expressions have machine code", status.compiled, kCompiledExpressions);
    context.report->add(
        "compiled", {what + "predictions", "T nodes/s", predictions, atLeast(population == "mixed" ? 15 : 21), note});
    context.report->add("compiled", {what + "losses", "T nodes/s", losses});
    context.report->add("compiled", {what + "time of losses over predictions", "times", ratios, atMost(1)});
  }
}

void benchCompiling(const BenchContext& context) {
  const std::size_t count = manyExpressions(context);
  const std::vector<Expression> expressions = populationOf("mixed", count);
  const BenchData data(kBenchColumns, kManyRows);
  std::vector<double> wall, cores;
  std::size_t compiled = 0;
  context.sample(5, 30, [&] {
    // Without a disk cache, every engine compiles everything again.
    const Engine engine = must(Engine::create({.device = context.device, .math = Math::kFast, .cache_directory = ""}));
    const Dataset uploaded = must(engine.upload(data.view()));
    const Stopwatch watch;
    const Program program = engine.compile(expressions, {.tier = Tier::kCompile});
    must(engine.prepare(program, uploaded, LossOptions{}));
    wall.push_back(watch.seconds() * kMillisPerSecond / static_cast<double>(count));
    cores.push_back(engine.cacheStats().compile_seconds * kMillisPerSecond / static_cast<double>(count));
    compiled = program.status().compiled;
    return wall.back();
  });
  const std::string what = fmt::format("compiling {} mixed expressions to loaded kernels, ", count);
  context.report->add("compiling", {what + "wall time", "ms/expression", wall, atMost(0.5),
                                    fmt::format("{} have machine code of their own", compiled)});
  context.report->add("compiling", {what + "LLVM and assembler", "core ms/expression", cores});
}

void benchSecondProcess(const BenchContext& context) {
  const std::size_t count = manyExpressions(context);
  const std::string cache = context.scratch + "/second";
  const nlohmann::ordered_json first = runChild(context, cache, count);
  std::vector<double> ready, compiling, reading, loading, engine, losses, all;
  nlohmann::ordered_json last;
  context.sample(5, 20, [&] {
    last = runChild(context, cache, count);
    compiling.push_back(last["compile_ms"].get<double>());
    ready.push_back(compiling.back() + last["prepare_ms"].get<double>());
    reading.push_back(last["reading_ms"].get<double>());
    loading.push_back(last["loading_ms"].get<double>());
    engine.push_back(last["engine_ms"].get<double>());
    losses.push_back(last["losses_ms"].get<double>());
    all.push_back(engine.back() + ready.back() + losses.back());
    return ready.back();
  });
  const std::string what = fmt::format("second process, {} mixed expressions from disk, ", count);
  context.report->add("second",
                      {what + "expressions to loaded kernels", "ms", ready, atMost(20),
                       fmt::format("{} of {} requests were misses", last["misses"].dump(), last["requests"].dump())});
  context.report->add("second", {what + "of that, order of expressions and passes", "ms", compiling});
  context.report->add("second", {what + "of that, finding and reading", "ms", reading});
  context.report->add("second", {what + "of that, loading by the driver", "ms", loading});
  context.report->add("second", {what + "engine (driver, context)", "ms", engine});
  context.report->add("second", {what + "first losses after that", "ms", losses});
  context.report->add("second", {what + "engine, kernels and first losses", "ms", all});
  context.report->attach("second", {{"first_process", first}, {"second_process", last}});
}

void runSecondProcess(const std::string& device, const std::string& cache_directory, std::size_t count) {
  const std::vector<Expression> expressions = populationOf("mixed", count);
  const BenchData data(kBenchColumns, kManyRows);
  const Stopwatch creating;
  const Engine engine =
      must(Engine::create({.device = device, .math = Math::kFast, .cache_directory = cache_directory}));
  const double engine_ms = creating.seconds() * kMillisPerSecond;
  const Dataset uploaded = must(engine.upload(data.view()));
  const Stopwatch compiling;
  const Program program = engine.compile(expressions, {.tier = Tier::kCompile});
  const double compile_ms = compiling.seconds() * kMillisPerSecond;
  const Stopwatch preparing;
  must(engine.prepare(program, uploaded, LossOptions{}));
  const double prepare_ms = preparing.seconds() * kMillisPerSecond;
  const ProgramStatus status = program.status();
  const Seconds losses = timeLoss(engine, program, uploaded, {});
  const CacheStats stats = engine.cacheStats();
  const nlohmann::ordered_json times = {{"engine_ms", engine_ms},
                                        {"compile_ms", compile_ms},
                                        {"passes_ms", program.info().seconds_passes * kMillisPerSecond},
                                        {"prepare_ms", prepare_ms},
                                        {"reading_ms", status.seconds_reading * kMillisPerSecond},
                                        {"loading_ms", status.seconds_loading * kMillisPerSecond},
                                        {"losses_ms", losses.wall * kMillisPerSecond},
                                        {"requests", stats.memory_hits + stats.disk_hits + stats.misses},
                                        {"disk_hits", stats.disk_hits},
                                        {"misses", stats.misses},
                                        {"disk_fault", stats.disk_fault}};
  std::fputs((times.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + '\n').c_str(), stdout);
}

}  // namespace srjit
