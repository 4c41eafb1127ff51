// The parts of the GPU's benchmark and what they share. A part throws BenchFailure.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "ir/text.h"
#include "runtime/engine.h"
#include "runtime/platform/clock.h"
#include "tests/generators/population.h"
#include "tools/bench/bench_failure.h"
#include "tools/bench/gpu_report.h"

namespace srjit {

struct BenchContext {
  std::string device;   ///< "cpu" or "cuda:N"
  std::string scratch;  ///< a directory for this part alone
  std::string warm;     ///< the directory of warmCache(); empty: none
  bool quick = false;
  double seconds = 0;  ///< that all parts together may take
  Stopwatch started = {};
  GpuReport* report = nullptr;
  // What scenarios alone look at.
  bool losses = true, predictions = true;  ///< which results
  bool baselines = true;
  std::string data_file = {};

  double left() const { return seconds - started.seconds(); }
  /// Whether there is time to begin `name`, a piece of `part`; if not, the report says so.
  bool mayBegin(const std::string& part, const std::string& name) const;
  bool onGpu() const { return device != "cpu"; }
  /// Of the GPU; 0 on a processor.
  unsigned ordinal() const { return onGpu() ? static_cast<unsigned>(std::stoul(device.substr(5))) : 0; }
  /// A directory for kernels in the scratch directory, which begins as a copy of the warm one: of expressions there is
  /// nothing in it but what this part has made under this name.
  std::string cacheDirectory(const std::string& name = "cache") const;
  /// With kernels in cacheDirectory(cache).
  Engine engine(Math math, const std::string& cache = "cache") const;

  /// Calls `body`, which gives a sample, at most `count` times in at most `limit` seconds, but at least once; a quick
  /// run has at most 3 samples in a fifth of the time.
  std::vector<double> sample(std::size_t count, double limit, const std::function<double()>& body) const;
};

/// Columns of uniform numbers on (-3, 3), and a target likewise.
struct BenchData {
  BenchData() = default;
  BenchData(std::size_t columns, std::size_t rows);
  /// The columns on (0.05, 3.05) instead: logarithms and powers of negative numbers are NaN, so that of random trees of
  /// such functions hardly any would have a finite loss.
  static BenchData positive(std::size_t columns, std::size_t rows);
  DataView view() const;
  std::size_t rows() const { return target.size(); }

  std::vector<std::vector<float>> columns;
  std::vector<float> target;
};

std::vector<Expression> populationOf(std::string_view name, std::size_t count);
/// Tokens of all expressions, as they were given.
double nodesOf(std::span<const Expression> expressions);
/// Numbers for `count` parameters; another `step` gives others.
std::vector<double> parameterNumbers(std::size_t count, int step);
/// Numbers for all parameters of a program.
std::vector<double> parametersFor(const Program& program, int step);

/// Expressions, one a line, and back; in parallel.
std::string textOf(std::span<const Expression> expressions, Language language);
std::vector<Expression> parseLines(const std::string& text, Language language);

/// Puts into an empty directory what a machine makes once: interpreters, and the direct tier's self-test. Does nothing
/// on a processor. Throws BenchFailure, CudaFailure.
void warmCache(const std::string& device, const std::string& directory);

/// Whether an engine's device has the direct tier. Runs its self-test, so that this is not timed later.
bool hasDirect(const Engine& engine);
/// The tiers that an engine has, without kAuto: the interpreter, the direct tier perhaps, LLVM's machine code.
std::vector<Tier> tiersOf(const Engine& engine);
/// As figures and as JSON call a tier.
const char* nameOf(Tier tier);
const char* keyOf(Tier tier);

/// What one evaluation took. On a processor `device` is the same as `wall`.
struct Seconds {
  double wall, device;
};
Seconds timeLoss(const Engine& engine, const Program& program, const Dataset& data, std::span<const double> parameters);
Seconds timePredictions(const Engine& engine, const Program& program, const Dataset& data,
                        std::span<const double> parameters, std::span<float> out);

/// A part, or a scenario, which has a limit of seconds of its own.
struct BenchPart {
  const char* name;
  const char* doc;
  void (*run)(const BenchContext& context);
  double seconds = 0;
  bool reads_data = false;  ///< of BenchContext::data_file
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

#define SRJIT_SCENARIO(id, name, seconds, data, doc) void bench##id(const BenchContext& context);
#include "tools/bench/scenarios/scenarios.def"
#undef SRJIT_SCENARIO

/// What the second process does: prints its times as JSON.
void runSecondProcess(const std::string& device, const std::string& cache_directory, std::size_t expressions);

}  // namespace srjit
