// Generations of expressions that no engine has seen, and the time from such expressions in memory to their losses.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "tools/bench/work.h"

namespace srjit {

/// Generations of a population of populationOf() in which no expression is one of an earlier generation, so that
/// nothing kept from these can serve it: of small expressions and of mutants of other seeds, one in five would be.
/// Within a generation expressions may recur. Keeps 8 bytes (in a hash table) per expression.
class FreshSource {
 public:
  explicit FreshSource(std::string population) : population_(std::move(population)) {}
  std::vector<Expression> next(std::size_t count);

 private:
  std::string population_;
  std::uint64_t seed_ = 0;
  std::unordered_set<std::uint64_t> seen_;  ///< hashOf()
};

/// Data for the population "small", "mixed" or "formula". Columns of trees are positive (positiveData()).
BenchData freshData(std::string_view population, std::size_t rows);

/// A generation after another one.
struct NextGeneration {
  static constexpr std::size_t kNew = SIZE_MAX;

  std::vector<Expression> expressions;
  std::vector<std::size_t> from;  ///< of each expression, its index in the generation before, or kNew
};
/// As many expressions as `last` has: half of them (rounded down) from there, chosen at random, each at most once; the
/// others are the first of `fresh`, which must be enough. Their order is random.
NextGeneration halfKept(std::span<const Expression> last, std::span<const Expression> fresh, std::uint64_t seed);

/// Seconds of new expressions.
struct FreshTimes {
  double compile = 0;               ///< of total, Engine::compile()
  double total = 0;                 ///< from token arrays to losses on the host, by compile() and loss()
  double passes = 0, encoding = 0;  ///< of total, as ProgramInfo has them; encoding also where direct code is written
  double kernels = 0;               ///< of total, by the device's clock; 0 on a processor
  Seconds again = {};               ///< the same program once more, from parameters to losses
};
struct FreshRun : FreshTimes {
  std::vector<double> losses;
  Program program;
};
/// Compiles `generation` for the first time, announcing the rows of `data`, and evaluates its losses twice. Throws
/// BenchFailure, also if an expression fails.
FreshRun timeFresh(const Engine& engine, const Dataset& data, std::span<const Expression> generation,
                   CompileOptions options);

/// Seconds from token arrays to losses on the host, and the losses of `generation`, in one call, which may prepare a
/// part while the device evaluates another. Throws BenchFailure, also if an expression fails.
std::pair<double, std::vector<double>> timeOneCall(const Engine& engine, const Dataset& data,
                                                   std::span<const Expression> generation,
                                                   const CompileOptions& options);

/// Throws BenchFailure if the loss of a kept expression differs from the one before in any bit. Expressions have no
/// parameters.
void compareKept(const NextGeneration& generation, std::span<const double> losses, std::span<const double> before);

/// Core-seconds of passes and encoding per token. `engine` has one thread. Throws BenchFailure.
double frontEndSeconds(const Engine& engine, std::span<const Expression> generation, bool simplify);

}  // namespace srjit
