// Part about functions, one at a time: sums of applications of a function, as machine code of sr-jit and as CUDA C++,
// whose functions are those of CUDA's own library, without approximate arithmetic.
#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include <fmt/format.h>

#include "ir/ops.h"
#include "tools/bench/baselines/device.h"
#include "tools/bench/baselines/functions.h"
#include "tools/bench/failure.h"
#include "tools/bench/gpu_context.h"

namespace srjit {
namespace {

constexpr std::size_t kApplications = 16;                 // in a sum
constexpr std::size_t kSums = 4;                          // expressions: enough work to hide the launch
constexpr double kLeastRatio = 1, kLeastMeanRatio = 1.3;  // the targets

/// Columns in the lower halves of the operands' ranges; applicationsOf() adds up to the other half.
BenchData operandsOf(const LibraryFunction& function, std::size_t rows) {
  BenchData data(2, rows);
  const auto scale = [](std::vector<float>& column, double low, double high) {
    for (float& value : column) {
      value = static_cast<float>(low + (high - low) / 2 * (static_cast<double>(value) + 3) / 6);
    }
  };
  scale(data.columns[0], function.x_low, function.x_high);
  scale(data.columns[1], function.y_low, function.y_high);
  return data;
}

/// Sum `number`: f(x0 + c, x1 + d) + ..., with other constants in every term, so that no two are the same subtree.
Expression applicationsOf(const LibraryFunction& function, std::size_t number) {
  std::vector<Token> tokens;
  const auto operand = [&](std::uint32_t column, double offset) {
    tokens.push_back(Token::variable(column));
    tokens.push_back(Token::constant(offset));
    tokens.push_back(Token::operation(Op::kAdd));
  };
  for (std::size_t i = 0; i < kApplications; ++i) {
    const double part = (static_cast<double>(i * kSums + number) + 0.5) / (kApplications * kSums);
    operand(0, part * (function.x_high - function.x_low) / 2);
    if (arityOf(function.op) == 2) operand(1, (1 - part) * (function.y_high - function.y_low) / 2);
    tokens.push_back(Token::operation(function.op));
    if (i > 0) tokens.push_back(Token::operation(Op::kAdd));
  }
  return must(Expression::create(std::move(tokens)));
}

/// Throws BenchFailure where sums of squared errors differ. Both have the same operands, for which no result is
/// infinite, so results differ by a few units in the last place, even beside a pole, and the sums by the order of
/// additions.
void expectNear(std::span<const double> sums, std::span<const double> expected) {
  constexpr double kSumTolerance = 1e-3;
  for (std::size_t e = 0; e < sums.size(); ++e) {
    if (std::fabs(sums[e] - expected[e]) <= kSumTolerance * expected[e]) continue;
    throw BenchFailure{
        Error{Errc::kMachine,
              fmt::format("sum {} of squared errors is {}, with CUDA's function {}", e + 1, sums[e], expected[e]),
              {}}};
  }
}

class FunctionBench {
 public:
  explicit FunctionBench(const BenchContext& context)
      : context_(context),
        rows_(context.quick || !context.onGpu() ? 50'000 : 1'000'000),
        engine_(context.engine(Math::kPrecise)),
        tiers_(tiersOf(engine_)) {
    std::erase(tiers_, Tier::kInterpret);
  }

  void run() {
    for (const LibraryFunction& function : allLibraryFunctions()) {
      const std::string name(infoOf(function.op).name);
      if (!context_.mayBegin("functions", name)) continue;
      if (const Status done = caught([&] { measure(function, name); }); !done) {
        context_.report->addFault("functions", fmt::format("{}: {}", name, done.error().message));
      }
    }
    for (const auto& [tier, logarithms] : logarithms_) {
      double sum = 0;
      for (const double logarithm : logarithms) sum += logarithm;
      context_.report->add("functions",
                           {fmt::format("functions, f32 precise, {}: speed over CUDA's, geometric mean", titleOf(tier)),
                            "times",
                            {std::exp(sum / static_cast<double>(logarithms.size()))},
                            atLeast(kLeastMeanRatio),
                            fmt::format("{} functions", logarithms.size())});
    }
  }

 private:
  void measure(const LibraryFunction& function, const std::string& name) {
    const BenchData data = operandsOf(function, rows_);
    std::vector<Expression> sums;
    for (std::size_t i = 0; i < kSums; ++i) sums.push_back(applicationsOf(function, i));
    const Dataset uploaded = must(engine_.upload(data.view()));
    std::vector<double> expected(kSums);
    const std::optional<double> library = librarySeconds(data, sums, expected);
    const double values = static_cast<double>(kApplications * kSums * rows_);
    for (const Tier tier : tiers_) {
      const Program program = engine_.compile(sums, {.tier = tier});
      const Losses own = must(engine_.loss(program, uploaded, {}, {.kind = LossKind::kSse}));
      if (const auto error = program.status().error) throw BenchFailure{*error};
      if (library) expectNear(own.values, expected);
      const std::vector<double> seconds =
          context_.sample(15, 0.1, [&] { return timeLoss(engine_, program, uploaded, {}).device; });
      add(fmt::format("functions, f32 precise, {} x {} in a sum, {}: ", kApplications, name, titleOf(tier)), tier,
          seconds, values, library);
    }
  }

  void add(const std::string& what, Tier tier, const std::vector<double>& seconds, double values,
           std::optional<double> library) {
    const double picoseconds = 1e12 / values;
    std::vector<double> samples;
    for (const double one : seconds) samples.push_back(library ? *library / one : one * picoseconds);
    if (!library) {
      context_.report->add("functions", {what + "time", "ps/value", samples});
      return;
    }
    logarithms_[tier].push_back(std::log(medianOf(samples)));
    context_.report->add("functions", {what + "speed over CUDA's", "times", samples, atLeast(kLeastRatio),
                                       fmt::format("{:.3f} ps/value, CUDA's {:.3f}", medianOf(seconds) * picoseconds,
                                                   *library * picoseconds)});
  }

  /// The time of CUDA's functions; none where they cannot be had. `sums` receives the sums of squared errors.
  std::optional<double> librarySeconds(const BenchData& data, std::span<const Expression> expressions,
                                       std::span<double> sums) {
    if (!has_library_) return {};
    std::unique_ptr<Baseline> library;
    const Status made = caught([&] {
      library = makeNvrtcBaseline(openBaselineDevice(context_.ordinal()),
                                  {context_.ordinal(), data.columns, data.target}, Math::kPrecise);
    });
    if (!made) {
      has_library_ = false;
      context_.report->addNotRun("functions", "CUDA's library", made.error().message);
      return {};
    }
    library->prepare(expressions);
    library->losses({}, sums);
    return medianOf(context_.sample(15, 0.1, [&] {
      library->losses({}, sums);
      return library->kernelSeconds();
    }));
  }

  const BenchContext& context_;
  const std::size_t rows_;
  const Engine engine_;
  std::vector<Tier> tiers_;
  bool has_library_ = true;
  std::map<Tier, std::vector<double>> logarithms_;  ///< of the ratios of each function
};

}  // namespace

void benchFunctions(const BenchContext& context) { FunctionBench(context).run(); }

}  // namespace srjit
