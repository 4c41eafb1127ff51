// What scenarios measure: data, populations, the times of evaluations, and those of published designs on the same work.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/text.h"
#include "tests/generators/population.h"
#include "tools/bench/designs/baseline.h"
#include "tools/bench/harness.h"

namespace srjit {

/// Expressions, rows and columns of random trees: those of the Julia thesis (docs/internals/baselines.md).
inline constexpr std::size_t kTrees = 10'000, kTreeRows = 10'860, kTreeColumns = 10;

/// Columns of uniform numbers on (-3, 3), and a target of the same distribution.
BenchData randomData(std::size_t columns, std::size_t rows);
/// The same on (0.05, 3.05): logarithms and powers of negative numbers are NaN, so few random trees of such functions
/// would have a finite loss.
BenchData positiveData(std::size_t columns, std::size_t rows);
/// The variables of the formula of tests/generators/klein_nishina.h on (0.5, 3), and its values as the target.
BenchData formulaData(std::size_t rows);

/// Expressions of a population of tests/generators/population.h, or "formula": mutated copies of a formula
/// (klein_nishina.h). The only place where a population is made.
std::vector<Expression> populationOf(std::string_view name, std::size_t count, std::uint64_t seed = 1);
/// `count` of the expressions, evenly spread.
std::vector<Expression> evenlySpread(std::span<const Expression> expressions, std::size_t count);
/// Tokens, and parameters, of all given expressions.
double nodesOf(std::span<const Expression> expressions);
std::size_t parametersOf(std::span<const Expression> expressions);
/// Values of `count` parameters; they depend on `step`.
std::vector<double> parameterNumbers(std::size_t count, int step);
/// Values of all parameters of a program.
std::vector<double> parametersFor(const Program& program, int step);

/// Expressions as text, one per line, and back; in parallel.
std::string textOf(std::span<const Expression> expressions, Language language);
std::vector<Expression> parseLines(const std::string& text, Language language);

/// "COUNT NAME x ROWS rows" with these facts.
Subject subjectOf(std::size_t count, std::string_view name, std::size_t rows);
/// The subject in a tier: "SUBJECT, direct code".
Subject inTier(const Subject& subject, Tier tier);

/// Fills an empty cache directory with the interpreters and the result of the direct tier's self-test, which a machine
/// makes once. Does nothing on a processor. Throws BenchFailure, CudaFailure.
void warmCache(const std::string& device, const std::string& directory);
/// Whether an engine's device has the direct tier. Runs its self-test, so that no later measurement includes it.
bool hasDirect(const Engine& engine);
/// The tiers that an engine has, without kAuto: the interpreter, the direct tier if available, LLVM's machine code.
std::vector<Tier> tiersOf(const Engine& engine);
const char* titleOf(Tier tier);

/// A program whose code is loaded, for losses or predictions, and the seconds that took.
struct Ready {
  Program program;
  double seconds;
};
Ready makeReady(const Engine& engine, std::span<const Expression> expressions, const Dataset& data,
                CompileOptions options, bool predictions = false);

/// Times of one evaluation. On a processor `device` equals `wall`.
struct Seconds {
  double wall, device;
};
Seconds timeLoss(const Engine& engine, const Program& program, const Dataset& data, std::span<const double> parameters);
Seconds timePredictions(const Engine& engine, const Program& program, const Dataset& data,
                        std::span<const double> parameters, std::span<float> out);

/// Samples of losses or, with `out`, of predictions, after one evaluation that is not timed; without parameters.
/// `count` and `limit` as for Bench::sample().
struct Series {
  std::vector<double> wall, device;

  void add(const Seconds& seconds) {
    wall.push_back(seconds.wall);
    device.push_back(seconds.device);
  }
  /// Work per second of the device's time.
  std::vector<double> rates(double work) const;
};
Series timeSeries(const Bench& bench, const Engine& engine, const Program& program, const Dataset& data,
                  std::size_t count, double limit, std::span<float> out = {});

/// Throws BenchFailure that names `what`, if one number has other bits.
void requireSameBits(std::span<const double> numbers, std::span<const double> expected, const std::string& what);

/// The work of a design. References must outlive the runs.
struct DesignWork {
  Subject subject;
  const BenchData& data;
  std::span<const Expression> expressions;
  int steps = 1;                ///< evaluations, each with new parameters
  double frontend_seconds = 0;  ///< time from text to expressions, common to all designs
  /// If set, a sample is one preparation and one step for losses of expressions that it returns, new ones of the same
  /// kind and number each time; else one preparation counts, and `steps`. Designs that compile are then left out.
  std::function<std::vector<Expression>()> renewed = {};
};

/// Runs every design for the selected results, in about `seconds` altogether, and adds their figures. Each is checked
/// before it is timed, and the sums of the timed run are checked again. An error after construction is a fault; a
/// design that cannot be constructed on this machine, or has no time left, is reported as not run. If there is too
/// little time for all expressions, measures two evenly spread samples of different size and extrapolates linearly;
/// omitted steps count with the median of the others. Throws nothing.
void runDesigns(const Bench& bench, const DesignWork& work, double seconds);

}  // namespace srjit
