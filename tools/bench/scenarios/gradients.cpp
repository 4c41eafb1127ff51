// What a pass for losses and their gradients takes, against one for losses alone, and fits of the same expressions.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <filesystem>
#include <functional>

#include <fmt/format.h>

#include "ir/text.h"
#include "runtime/platform/trace_events.h"
#include "tools/bench/gpu_context.h"
#include "tools/files/data.h"
#include "tools/progress.h"

namespace srjit {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kGradientPart = "gradients";
constexpr std::size_t kGradientSamples = 15;
constexpr double kGradientSeconds = 1;  // per series
constexpr int kStarts = 1;              // the step of parametersFor()

struct GradientWork {
  const char* key;  ///< of exported files
  const char* name;
  GeneratorOptions options;
  std::size_t expressions, rows;  ///< how many are generated
  /// Whether other programs fit them, too: each parameter occurs once, and of the expressions those are left that have
  /// a parameter and a finite loss.
  bool for_peers = false;
  /// Whether they are fitted in 100 passes at most, too.
  bool to_convergence = false;
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
  const GeneratorOptions trees = treesOf(15, 17, 5, 7, 0.8);
  return {{.key = "small",
           .name = "small expressions of up to 2 parameters",
           .options = *findPopulation("small", 11),
           .expressions = 250'000 / part,
           .rows = 362,
           .to_convergence = true},
          {"trees", "trees of 16 nodes, 7 parameters", trees, 100'000 / part, 1'000},
          {"four", "trees of 16 nodes, 4 parameters", treesOf(15, 17, 5, 4, 0.8), 100'000 / part, 1'000},
          {"one-use", "trees of 16 nodes, parameters of one use", trees, 100'000 / part, 1'000, true},
          {.key = "random",
           .name = "random trees, 3 parameters",
           .options = treesOf(10, 50, 10, 3, 0.3),
           .expressions = 10'000 / part,
           .rows = 10'860,
           .to_convergence = true}};
}

/// The same with p0, p1, ... for the parameters in the order of the tokens.
Expression withParametersOfOneUse(const Expression& expression) {
  std::vector<Token> tokens(expression.tokens().begin(), expression.tokens().end());
  std::uint32_t next = 0;
  for (Token& token : tokens) {
    if (token.kind == Token::Kind::kParameter) token = Token::parameter(next++);
  }
  return Expression::create(std::move(tokens)).value();
}

/// Those that have parameters and, from their starts, a finite loss. The processor decides it for every device. Starts
/// depend on the place, so a few of those that are left have none from their new starts.
std::vector<Expression> thoseToFit(BenchContext context, const BenchData& data, std::vector<Expression> expressions) {
  context.device = "cpu";
  const Engine engine = context.engine(Math::kPrecise, "processor");
  const Program program = engine.compile(expressions, {.tier = Tier::kInterpret});
  const Losses losses = must(engine.loss(program, must(engine.upload(data.view())), parametersFor(program, kStarts)));
  std::vector<Expression> kept;
  for (std::size_t i = 0; i < expressions.size(); ++i) {
    if (expressions[i].parameterCount() > 0 && std::isfinite(losses.values[i])) kept.push_back(expressions[i]);
  }
  return kept;
}

std::vector<Expression> expressionsOf(const BenchContext& context, const GradientWork& work, const BenchData& data) {
  std::vector<Expression> expressions = ExpressionGenerator(work.options).batch(work.expressions);
  if (!work.for_peers) return expressions;
  std::ranges::transform(expressions, expressions.begin(), withParametersOfOneUse);
  return thoseToFit(context, data, std::move(expressions));
}

/// How long the kernels take that `work` runs. Ends a trace that was started.
double kernelSeconds(const std::function<void()>& work) {
  std::atomic<double> seconds = 0;
  startTrace([&](const TraceEvent& event) {
    if (event.kind == TraceKind::kKernel) seconds += event.seconds;
  });
  work();
  must(endTrace());
  return seconds;
}

class GradientBench {
 public:
  GradientBench(const BenchContext& context, const GradientWork& work)
      : context_(context),
        work_(work),
        engine_(context.engine(Math::kFast)),
        host_data_(BenchData::positive(static_cast<std::size_t>(work.options.variables), work.rows)),
        data_(must(engine_.upload(host_data_.view()))),
        expressions_(expressionsOf(context, work, host_data_)) {}

  Json run() {
    if (!context_.export_folder.empty()) exportFits();
    Json row = {{"key", work_.key}, {"name", work_.name}, {"expressions", expressions_.size()}, {"rows", work_.rows}};
    row["interpreted"] = series(Tier::kInterpret);
    if (hasDirect(engine_)) row["direct"] = series(Tier::kDirect);
    row["graph_losses"] = graphLosses();
    row["normal_equations"] = normalEquations();
    row["fits"] = fits(10);
    if (work_.to_convergence) row["fits_to_convergence"] = fits(100);
    return row;
  }

 private:
  /// Writes what fits() fits, as `sr-jit fit` reads it: KEY.txt with the starts, and KEY.npy, whose last column is the
  /// target.
  void exportFits() const {
    const std::filesystem::path folder = context_.export_folder;
    std::filesystem::create_directories(folder);
    const Program program = engine_.compile(expressions_);
    const std::vector<double> starts = parametersFor(program, kStarts);
    OutputFile text = must(OutputFile::create((folder / fmt::format("{}.txt", work_.key)).string()));
    for (std::size_t i = 0; i < expressions_.size(); ++i) {
      const std::span<const double> own = std::span(starts).subspan(
          program.parameterOffset(i), program.parameterOffset(i + 1) - program.parameterOffset(i));
      text.write(fmt::format("{}\t{}\n", print(expressions_[i], Language::kInfix), fmt::join(own, " ")));
    }
    OutputFile table = must(OutputFile::create((folder / fmt::format("{}.npy", work_.key)).string()));
    std::vector<std::span<const float>> columns(host_data_.columns.begin(), host_data_.columns.end());
    columns.emplace_back(host_data_.target);
    writeMatrix<float>(table, columns, MatrixFormat::kNpy);
    for (OutputFile* file : {&text, &table}) {
      if (const Status written = file->publish(); !written) throw BenchFailure{written.error()};
    }
  }

  // From tokens to fitted parameters: each program is new. The first fit is not timed, since it may assemble kernels.
  Json fits(unsigned most_passes) {
    std::vector<double> times, rates;
    std::size_t converged = 0;
    const auto compile = [&] { return engine_.compile(expressions_, {.deferred = true}); };
    const std::vector<double> starts = parametersFor(compile(), kStarts);
    must(engine_.fit(compile(), data_, starts, {.iterations = most_passes}));
    context_.sample(7, 2 * kGradientSeconds, [&] {
      const Stopwatch watch;
      const Fits fits = must(engine_.fit(compile(), data_, starts, {.iterations = most_passes}));
      times.push_back(1e3 * watch.seconds());
      rates.push_back(static_cast<double>(expressions_.size()) / watch.seconds());
      converged = static_cast<std::size_t>(std::ranges::count(fits.statuses, FitStatus::kConverged));
      return times.back();
    });
    const std::string what = fmt::format("{} {} x {} rows, from tokens, fitted in {} passes at most",
                                         expressions_.size(), work_.name, work_.rows, most_passes);
    add(what + ": time", "ms", times);
    add(what + ": fits", "1/s", rates);
    add(what + ": converged", "part", {static_cast<double>(converged) / static_cast<double>(expressions_.size())});
    return {{"ms", times}, {"passes", most_passes}, {"converged", converged}};
  }

  // Kernels alone of a pass for normal equations, over those of losses.
  Json normalEquations() {
    const Program program = engine_.compile(expressions_);
    const std::vector<double> parameters = parametersFor(program, kStarts);
    const auto loss = [&] { must(engine_.loss(program, data_, parameters)); };
    const auto pass = [&] { must(engine_.fit(program, data_, parameters, {.iterations = 1})); };
    loss();
    pass();
    std::vector<double> losses, passes, ratios;
    context_.sample(kGradientSamples, kGradientSeconds, [&] {
      losses.push_back(1e3 * kernelSeconds(loss));
      passes.push_back(1e3 * kernelSeconds(pass));
      ratios.push_back(passes.back() / losses.back());
      return losses.back() + passes.back();
    });
    const std::string what = fmt::format("{} {} x {} rows, kernels alone", expressions_.size(), work_.name, work_.rows);
    add(what + ": losses", "ms", losses);
    add(what + ": normal equations", "ms", passes);
    add(what + ": normal equations over losses", "times", ratios);
    return {{"losses_ms", losses}, {"passes_ms", passes}};
  }

  // Losses that are roots of the expressions' graphs, over one that kernels have; and one pass of a fit, with what the
  // host does for it.
  Json graphLosses() {
    const Program program = engine_.compile(expressions_);
    const std::vector<double> parameters = parametersFor(program, kStarts);
    const LossOptions custom{.custom = must(parse("abs(f - y)^1.5", Language::kInfix, {"f", "y", "w"}))};
    Json rows = Json::object();
    const auto compare = [&](const std::string& what, const auto& other) {
      other();
      must(engine_.loss(program, data_, parameters));
      std::vector<double> ratios;
      context_.sample(kGradientSamples, kGradientSeconds, [&] {
        const Stopwatch loss;
        must(engine_.loss(program, data_, parameters));
        const double plain = loss.seconds();
        const Stopwatch watch;
        other();
        ratios.push_back(watch.seconds() / plain);
        return 1e3 * (watch.seconds() + plain);
      });
      rows[what] = ratios;
      add(fmt::format("{} {} x {} rows: {} over mse", expressions_.size(), work_.name, work_.rows, what), "times",
          ratios);
    };
    compare("huber", [&] { must(engine_.loss(program, data_, parameters, {.kind = LossKind::kHuber})); });
    compare("scaled-mse", [&] { must(engine_.loss(program, data_, parameters, {.kind = LossKind::kScaledMse})); });
    compare("abs(f - y)^1.5", [&] { must(engine_.loss(program, data_, parameters, custom)); });
    compare("one pass of a fit", [&] { must(engine_.fit(program, data_, parameters, {.iterations = 1})); });
    return rows;
  }

  Json series(Tier tier) {
    const Program program = engine_.compile(expressions_, {.tier = tier});
    const std::vector<double> parameters = parametersFor(program, kStarts);
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
        fmt::format("{} {} x {} rows, {}", expressions_.size(), work_.name, work_.rows, titleOf(tier));
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
  BenchData host_data_;
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
