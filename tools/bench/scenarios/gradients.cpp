// What a pass for losses and their gradients takes, against one for losses alone, and fits of the same expressions.
#include <algorithm>

#include <fmt/format.h>

#include "tools/bench/gpu_context.h"
#include "tools/progress.h"

namespace srjit {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kGradientPart = "gradients";
constexpr std::size_t kGradientSamples = 15;
constexpr double kGradientSeconds = 1;  // per series

struct GradientWork {
  const char* name;
  GeneratorOptions options;
  std::size_t expressions, rows;
};

/// Trees of the operators that the populations "mixed" and "small" have; their variables are positive.
GeneratorOptions treesOf(int min_nodes, int max_nodes, int variables, int parameters, double share) {
  GeneratorOptions options = *findPopulation("mixed", 11);
  options.min_nodes = min_nodes;
  options.max_nodes = max_nodes;
  options.variables = variables;
  options.parameters = parameters;
  options.parameter_probability = share;
  return options;
}

std::vector<GradientWork> gradientWorks(const BenchContext& context) {
  const std::size_t part = context.quick ? 200 : context.onGpu() ? 1 : 10;
  return {{"small expressions of up to 2 parameters", *findPopulation("small", 11), 250'000 / part, 362},
          {"trees of 16 nodes, 7 parameters", treesOf(15, 17, 5, 7, 0.8), 100'000 / part, 1'000},
          {"random trees, 3 parameters", treesOf(10, 50, 10, 3, 0.3), 10'000 / part, 10'860}};
}

class GradientBench {
 public:
  GradientBench(const BenchContext& context, const GradientWork& work)
      : context_(context),
        work_(work),
        engine_(context.engine(Math::kFast)),
        data_(must(
            engine_.upload(BenchData::positive(static_cast<std::size_t>(work.options.variables), work.rows).view()))),
        expressions_(ExpressionGenerator(work.options).batch(work.expressions)) {}

  Json run() {
    Json row = {{"name", work_.name}, {"expressions", work_.expressions}, {"rows", work_.rows}};
    row["interpreted"] = series(Tier::kInterpret);
    if (hasDirect(engine_)) row["direct"] = series(Tier::kDirect);
    row["fits"] = fits();
    return row;
  }

 private:
  // From compiled expressions to fitted parameters. Each program is new, so its graphs are made, too.
  Json fits() {
    constexpr unsigned kPasses = 10;  // at most
    std::vector<double> times, rates;
    std::size_t converged = 0;
    context_.sample(5, 2 * kGradientSeconds, [&] {
      const Program program = engine_.compile(expressions_);
      const std::vector<double> starts = parametersFor(program, 1);
      const Stopwatch watch;
      const Fits fits = must(engine_.fit(program, data_, starts, {.iterations = kPasses}));
      times.push_back(1e3 * watch.seconds());
      rates.push_back(static_cast<double>(work_.expressions) / watch.seconds());
      converged = static_cast<std::size_t>(std::ranges::count(fits.statuses, FitStatus::kConverged));
      return times.back();
    });
    const std::string what =
        fmt::format("{} {} x {} rows, fitted in {} passes at most", work_.expressions, work_.name, work_.rows, kPasses);
    add(what + ": time", "ms", times);
    add(what + ": fits", "1/s", rates);
    add(what + ": converged", "part", {static_cast<double>(converged) / static_cast<double>(work_.expressions)});
    return {{"ms", times}, {"converged", converged}};
  }

  Json series(Tier tier) {
    const Program program = engine_.compile(expressions_, {.tier = tier});
    const std::vector<double> parameters = parametersFor(program, 1);
    const Stopwatch watch;
    must(engine_.gradient(program, data_, parameters));
    const double first = 1e3 * watch.seconds();
    must(engine_.loss(program, data_, parameters));
    std::vector<double> losses, gradients, ratios;
    Progress progress(work_.name, kGradientSamples, false);
    context_.sample(kGradientSamples, kGradientSeconds, [&] {
      const Stopwatch loss;
      must(engine_.loss(program, data_, parameters));
      losses.push_back(1e3 * loss.seconds());
      const Stopwatch gradient;
      must(engine_.gradient(program, data_, parameters));
      gradients.push_back(1e3 * gradient.seconds());
      ratios.push_back(gradients.back() / losses.back());
      progress.advance();
      return gradients.back();
    });
    const std::string what =
        fmt::format("{} {} x {} rows, {}", work_.expressions, work_.name, work_.rows, nameOf(tier));
    add(what + ": losses", "ms", losses);
    add(what + ": losses and gradients", "ms", gradients);
    add(what + ": of losses alone", "times", ratios);
    add(what + ": the first gradient, which makes the graphs", "ms", {first});
    return {{"losses_ms", losses}, {"gradients_ms", gradients}, {"first_ms", first}};
  }

  void add(std::string what, const char* unit, std::vector<double> samples) const {
    context_.report->add(kGradientPart, {std::move(what), unit, std::move(samples)});
  }

  const BenchContext& context_;
  const GradientWork& work_;
  Engine engine_;
  Dataset data_;
  std::vector<Expression> expressions_;
};

}  // namespace

void benchGradients(const BenchContext& context) {
  Json works = Json::array();
  for (const GradientWork& work : gradientWorks(context)) {
    if (!context.mayBegin(kGradientPart, work.name)) continue;
    works.push_back(GradientBench(context, work).run());
    context.report->attach(kGradientPart, {{"works", works}});
  }
}

}  // namespace srjit
