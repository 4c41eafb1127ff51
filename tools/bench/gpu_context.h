// The parts of the GPU's benchmark and their common functions. A part throws BenchFailure.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "ir/text.h"
#include "runtime/engine.h"
#include "runtime/platform/clock.h"
#include "tests/generators/population.h"
#include "tools/bench/failure.h"
#include "tools/bench/gpu_report.h"

namespace srjit {

inline constexpr double kMillisPerSecond = 1e3, kMicrosPerSecond = 1e6, kTera = 1e12;
/// Expressions, rows and columns of most parts: those of the Julia thesis (docs/internals/baselines.md).
inline constexpr std::size_t kPopulation = 10000, kPopulationRows = 10860, kBenchColumns = 10;

struct BenchContext {
  std::string device;   ///< "cpu" or "cuda:N"
  std::string scratch;  ///< a directory for this part alone
  std::string warm;     ///< the directory of warmCache(); empty: none
  bool quick = false;
  double seconds = 0;  ///< time limit of all parts together
  Stopwatch started = {};
  GpuReport* report = nullptr;
  // Used by scenarios only.
  bool losses = true, predictions = true;  ///< results to measure
  bool baselines = true;
  std::string data_file = {};
  std::string export_folder = {};  ///< where the scenario "gradients" writes its fits; empty: nowhere

  double left() const { return seconds - started.seconds(); }
  /// Whether there is time to start `name`, a piece of `part`; if not, the report records it as not run.
  bool mayBegin(const std::string& part, const std::string& name) const;
  bool onGpu() const { return device != "cpu"; }
  /// Device ordinal of the GPU; 0 on a processor.
  unsigned ordinal() const { return onGpu() ? static_cast<unsigned>(std::stoul(device.substr(5))) : 0; }
  /// A cache directory in the scratch directory, initialised as a copy of the warm one: it has no kernels of
  /// expressions except those that this part compiled under this name.
  std::string cacheDirectory(const std::string& name = "cache") const;
  /// An engine that caches kernels in cacheDirectory(cache).
  Engine engine(Math math, const std::string& cache = "cache", Precision precision = Precision::kF32) const;

  /// Calls `body`, which returns a sample, at most `count` times in at most `limit` seconds, but at least once; a quick
  /// run takes at most 3 samples in a fifth of the time.
  std::vector<double> sample(std::size_t count, double limit, const std::function<double()>& body) const;
};

/// Columns of uniform numbers on (-3, 3), and a target of the same distribution.
struct BenchData {
  BenchData() = default;
  BenchData(std::size_t columns, std::size_t rows);
  /// The same on (0.05, 3.05): logarithms and powers of negative numbers are NaN, so few random trees of such functions
  /// would have a finite loss.
  static BenchData positive(std::size_t columns, std::size_t rows);
  /// The variables of the formula of tests/generators/klein_nishina.h on (0.5, 3), and its values as the target.
  static BenchData ofFormula(std::size_t rows);
  DataView view() const;
  std::size_t rows() const { return target.size(); }

  std::vector<std::vector<float>> columns;
  std::vector<float> target;
};

std::vector<Expression> populationOf(std::string_view name, std::size_t count);
/// Tokens of all given expressions.
double nodesOf(std::span<const Expression> expressions);
/// Values of `count` parameters; they depend on `step`.
std::vector<double> parameterNumbers(std::size_t count, int step);
/// Values of all parameters of a program.
std::vector<double> parametersFor(const Program& program, int step);

/// Expressions as text, one per line, and back; in parallel.
std::string textOf(std::span<const Expression> expressions, Language language);
std::vector<Expression> parseLines(const std::string& text, Language language);

/// Fills an empty cache directory with what is made once per machine: interpreters, and the result of the direct tier's
/// self-test. Does nothing on a processor. Throws BenchFailure, CudaFailure.
void warmCache(const std::string& device, const std::string& directory);

/// Whether an engine's device has the direct tier. Runs its self-test, so that no later measurement includes it.
bool hasDirect(const Engine& engine);
/// The tiers that an engine has, without kAuto: the interpreter, the direct tier if available, LLVM's machine code.
std::vector<Tier> tiersOf(const Engine& engine);
/// The name of a tier in figures; nameOf() is that in JSON.
const char* titleOf(Tier tier);

/// Times of one evaluation. On a processor `device` equals `wall`.
struct Seconds {
  double wall, device;
};
Seconds timeLoss(const Engine& engine, const Program& program, const Dataset& data, std::span<const double> parameters);
Seconds timePredictions(const Engine& engine, const Program& program, const Dataset& data,
                        std::span<const double> parameters, std::span<float> out);

/// Samples of the device's rate, in T node evaluations per second, after one evaluation that is not timed: of losses
/// or, with `out`, of predictions. `nodes` are the tokens of all expressions; `count` and `limit` as for sample().
std::vector<double> kernelRates(const BenchContext& context, const Engine& engine, const Program& program,
                                const Dataset& data, double nodes, std::size_t count, double limit,
                                std::span<float> out = {});

/// A part, or a scenario, which has its own time limit.
struct BenchPart {
  const char* name;
  const char* doc;
  void (*run)(const BenchContext& context);
  double seconds = 0;
  bool reads_data = false;  ///< whether it reads BenchContext::data_file
};
void benchInterpreter(const BenchContext& context);
void benchSmall(const BenchContext& context);
void benchText(const BenchContext& context);
void benchCompiled(const BenchContext& context);
void benchCompiling(const BenchContext& context);
void benchSecondProcess(const BenchContext& context);
void benchSteady(const BenchContext& context);
void benchOverlap(const BenchContext& context);
void benchAuto(const BenchContext& context);
void benchDirect(const BenchContext& context);
void benchModes(const BenchContext& context);
void benchFunctions(const BenchContext& context);

#define SRJIT_SCENARIO(id, name, seconds, data, doc) void bench##id(const BenchContext& context);
#include "tools/bench/scenarios.def"
#undef SRJIT_SCENARIO

/// The second process: prints its times as JSON.
void runSecondProcess(const std::string& device, const std::string& cache_directory, std::size_t expressions);

}  // namespace srjit
