// Times of a pass for losses and their gradients, against one for only losses, and fits of the same expressions.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <filesystem>

#include <fmt/format.h>

#include "runtime/platform/trace_events.h"
#include "tools/bench/work.h"
#include "tools/files/data.h"

namespace srjit {
namespace {

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

std::vector<GradientWork> gradientWorks(const Bench& bench) {
  const std::size_t part = bench.quick ? 200 : bench.onGpu() ? 1 : 10;
  const GeneratorOptions trees = treesOf(15, 17, 5, 7, 0.8), four = treesOf(15, 17, 5, 4, 0.8);
  return {{.key = "small",
           .name = "small expressions of up to 2 parameters",
           .options = *findPopulation("small", 11),
           .expressions = 250'000 / part,
           .rows = 362,
           .to_convergence = true},
          {"trees", "trees of 16 nodes, 7 parameters", trees, 100'000 / part, 1'000},
          {"four", "trees of 16 nodes, 4 parameters", four, 100'000 / part, 1'000},
          {"one-use", "trees of 16 nodes, parameters of one use", trees, 100'000 / part, 1'000, true},
          {.key = "random",
           .name = "random trees, 3 parameters",
           .options = treesOf(10, 50, 10, 3, 0.3),
           .expressions = kTrees / part,
           .rows = kTreeRows,
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
std::vector<Expression> expressionsOf(const GradientWork& work, const BenchData& data) {
  std::vector<Expression> expressions = ExpressionGenerator(work.options).batch(work.expressions);
  if (!work.for_peers) return expressions;
  std::ranges::transform(expressions, expressions.begin(), withParametersOfOneUse);
  const Engine engine = must(Engine::create({.device = "cpu", .math = Math::kPrecise}));
  const Program program = engine.compile(expressions, {.tier = Tier::kInterpret});
  const Losses losses = must(engine.loss(program, must(engine.upload(data.view())), parametersFor(program, kStarts)));
  std::vector<Expression> kept;
  for (std::size_t i = 0; i < expressions.size(); ++i) {
    if (expressions[i].parameterCount() > 0 && std::isfinite(losses.values[i])) kept.push_back(expressions[i]);
  }
  return kept;
}

/// How long the kernels take that `work` runs. Ends a trace that was started.
template <class Work>
double kernelSeconds(const Work& work) {
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
  GradientBench(const Bench& bench, const GradientWork& work)
      : bench_(bench),
        work_(work),
        engine_(bench.engine()),
        host_data_(positiveData(static_cast<std::size_t>(work.options.variables), work.rows)),
        data_(must(engine_.upload(host_data_.view()))),
        expressions_(expressionsOf(work, host_data_)),
        subject_(subjectOf(expressions_.size(), work.name, work.rows).with("", {{"key", work.key}})) {}

  void run() {
    if (!bench_.export_folder.empty()) exportFits();
    gradients(Tier::kInterpret);
    if (hasDirect(engine_)) gradients(Tier::kDirect);
    losses();
    normalEquations();
    fits(10);
    if (work_.to_convergence) fits(100);
  }

 private:
  /// Writes what fits() fits, as `sr-jit fit` reads it: KEY.txt with the starts, and KEY.npy, whose last column is the
  /// target.
  void exportFits() const {
    const std::filesystem::path folder = bench_.export_folder;
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
    writeMatrix<float>(table, columns, ".npy");
    for (OutputFile* file : {&text, &table}) {
      if (const Status written = file->publish(); !written) throw BenchFailure{written.error()};
    }
  }

  /// Samples of a pass for losses and one of `other`, by turns, each after one that is not timed, as `timed` times
  /// them.
  template <class Timed, class Loss, class Other>
  void compare(const Subject& subject, const char* metric, const Timed& timed, const Loss& loss, const Other& other) {
    other();
    loss();
    std::vector<double> losses, others, ratios;
    bench_.sample(kGradientSamples, kGradientSeconds, [&] {
      losses.push_back(timed(loss));
      others.push_back(timed(other));
      ratios.push_back(others.back() / losses.back());
      return others.back();
    });
    bench_.add(subject.with(metric), "losses alone", "ms", losses);
    bench_.add(subject.with(metric), "time", "ms", others);
    bench_.add(subject.with(metric), "over losses alone", "times", ratios);
  }
  template <class Work>
  static double wallSeconds(const Work& work) {
    const Stopwatch watch;
    work();
    return watch.seconds();
  }

  void gradients(Tier tier) {
    const Program program = engine_.compile(expressions_, {.tier = tier});
    const std::vector<double> parameters = parametersFor(program, kStarts);
    const auto gradient = [&] { must(engine_.gradient(program, data_, parameters)); };
    const Subject subject = inTier(subject_, tier);
    bench_.add(subject, "the first gradient, which makes the graphs", "ms", {wallSeconds(gradient)});
    compare(
        subject, "losses and gradients", [](const auto& work) { return wallSeconds(work); },
        [&] { must(engine_.loss(program, data_, parameters)); }, gradient);
  }

  // Losses that are roots of the expressions' graphs, over one that kernels have; and one pass of a fit, with what the
  // host does for it.
  void losses() {
    const Program program = engine_.compile(expressions_);
    const std::vector<double> parameters = parametersFor(program, kStarts);
    const auto add = [&](const char* what, const auto& other) {
      compare(
          subject_, what, [](const auto& work) { return wallSeconds(work); },
          [&] { must(engine_.loss(program, data_, parameters)); }, other);
    };
    const auto loss = [&](const LossOptions& options) { must(engine_.loss(program, data_, parameters, options)); };
    const LossOptions custom{.custom = must(parse("abs(f - y)^1.5", Language::kInfix, {"f", "y", "w"}))};
    add("huber", [&] { loss({.kind = LossKind::kHuber}); });
    add("scaled-mse", [&] { loss({.kind = LossKind::kScaledMse}); });
    add("abs(f - y)^1.5", [&] { loss(custom); });
    add("one pass of a fit", [&] { must(engine_.fit(program, data_, parameters, {.iterations = 1})); });
  }

  // Only the kernels of a pass for normal equations, over those of losses.
  void normalEquations() {
    const Program program = engine_.compile(expressions_);
    const std::vector<double> parameters = parametersFor(program, kStarts);
    compare(
        subject_, "normal equations, kernels alone", [](const auto& work) { return kernelSeconds(work); },
        [&] { must(engine_.loss(program, data_, parameters)); },
        [&] { must(engine_.fit(program, data_, parameters, {.iterations = 1})); });
  }

  // From tokens to fitted parameters: each program is new. The first fit is not timed, since it may assemble kernels.
  void fits(unsigned most_passes) {
    std::vector<double> times, rates;
    std::size_t converged = 0;
    const auto compile = [&] { return engine_.compile(expressions_, {.deferred = true}); };
    const std::vector<double> starts = parametersFor(compile(), kStarts);
    must(engine_.fit(compile(), data_, starts, {.iterations = most_passes}));
    const auto count = static_cast<double>(expressions_.size());
    bench_.sample(7, 2 * kGradientSeconds, [&] {
      const Stopwatch watch;
      const Fits fits = must(engine_.fit(compile(), data_, starts, {.iterations = most_passes}));
      times.push_back(watch.seconds());
      rates.push_back(count / times.back());
      converged = static_cast<std::size_t>(std::ranges::count(fits.statuses, FitStatus::kConverged));
      return times.back();
    });
    const Subject subject = subject_.with(fmt::format("from tokens, fitted in {} passes at most", most_passes),
                                          {{"passes", most_passes}, {"converged", converged}});
    bench_.add(subject, "time", "ms", times);
    bench_.add(subject, "fits", "1/s", rates);
    bench_.add(subject, "converged", "part", {static_cast<double>(converged) / count});
  }

  const Bench& bench_;
  const GradientWork& work_;
  Engine engine_;
  BenchData host_data_;
  Dataset data_;
  std::vector<Expression> expressions_;
  Subject subject_;
};

}  // namespace

void benchGradients(const Bench& bench) {
  for (const GradientWork& work : gradientWorks(bench)) {
    if (bench.mayBegin(work.name)) GradientBench(bench, work).run();
  }
}

}  // namespace srjit
