// Tier::kAuto against both forced tiers, over a grid of rows, expressions and evaluations.
//
// A total is the wall time from expressions to the losses of the last evaluation. If all evaluations would take too
// long, only the first are run, and the others are estimated by the median time of the last ones run ("measured" is
// then false). The total of the forced compiled tier includes its kernels once per population, since they do not depend
// on the rows; compile times of large populations are extrapolated from the next smaller one. An engine caches kernels,
// so every population for kAuto has its variables renamed: equal cost, other keys.
#include <algorithm>
#include <chrono>
#include <map>
#include <numeric>
#include <thread>

#include <fmt/format.h>
#include <tbb/parallel_for.h>

#include "tools/bench/gpu_context.h"

namespace srjit {
namespace {

struct Total {
  double seconds = 0;
  bool measured = false;
};

/// Machine code of the first expressions of the population. A population `scale` times as large is estimated at `scale`
/// times the time.
struct Forced {
  Program program;
  double seconds;
  double scale;
};

class AutoGrid {
 public:
  explicit AutoGrid(const BenchContext& context)
      : context_(context),
        engine_(context.engine(Math::kFast)),
        rows_(context.quick ? std::vector<std::size_t>{100, 10000, 100000}
                            : std::vector<std::size_t>{100, 1000, 10000, 100000, 1000000}),
        counts_(context.quick ? std::vector<std::size_t>{10, 1000}
                              : std::vector<std::size_t>{10, 100, 1000, 10000, 100000}),
        evaluations_(context.quick ? std::vector<int>{1, 1000} : std::vector<int>{1, 10, 100, 1000}),
        population_(populationOf("mixed", counts_.back())) {}

  void run() {
    for (const std::size_t rows : rows_) {
      data_.emplace(must(engine_.upload(BenchData(kBenchColumns, rows).view())));
      warmUp();
      for (const std::size_t count : counts_) {
        const double compiled_seconds = forcedSeconds(count);
        for (const int evaluations : evaluations_) {
          if (context_.left() < 0) return finish(false);
          addCell(count, evaluations, compiled_seconds);
        }
      }
    }
    finish(true);
  }

 private:
  // Compiles the interpreter's kernels before the first measurement. Uses renamed variables, so that no measured
  // population finds its own kernels in the cache.
  void warmUp() {
    const std::vector<Expression> few = renamed(counts_.front(), ++variant_);
    for (const Tier tier : {Tier::kInterpret, Tier::kCompile}) {
      must(engine_.loss(engine_.compile(few, {.tier = tier}), *data_, {}));
    }
  }

  /// The first `count` expressions with variables permuted by the seed `number`.
  std::vector<Expression> renamed(std::size_t count, std::uint64_t number) const {
    std::vector<std::uint32_t> names(kBenchColumns);
    std::iota(names.begin(), names.end(), 0U);
    Random random(number);
    for (std::size_t i = kBenchColumns; i > 1; --i) std::swap(names[i - 1], names[random.below(i)]);
    std::vector<Expression> expressions(population_.begin(), population_.begin() + static_cast<std::ptrdiff_t>(count));
    tbb::parallel_for(std::size_t{0}, count, [&](std::size_t e) {
      const auto tokens = population_[e].tokens();
      std::vector<Token> own(tokens.begin(), tokens.end());
      for (Token& token : own) {
        if (token.kind == Token::Kind::kVariable) token.index = names[token.index];
      }
      expressions[e] = Expression::create(std::move(own)).value();
    });
    return expressions;
  }

  const Forced& forced(std::size_t count) {
    if (const auto found = forced_.find(count); found != forced_.end()) return found->second;
    const double most = context_.quick ? 2 : 8;
    if (count >= 1000) {
      const Forced& smaller = forced(count / (context_.quick ? 100 : 10));
      const double factor = context_.quick ? 100 : 10;
      if (smaller.scale > 1 || smaller.seconds * factor > most) {
        Forced scaled = smaller;
        scaled.scale *= factor;
        return forced_.emplace(count, std::move(scaled)).first->second;
      }
    }
    const Stopwatch watch;
    Program program = engine_.compile(std::span(population_).first(count), {.tier = Tier::kCompile});
    must(engine_.prepare(program, *data_, LossOptions{}));
    return forced_.emplace(count, Forced{std::move(program), watch.seconds(), 1}).first->second;
  }

  /// Seconds of one evaluation by compiled code.
  double forcedSeconds(std::size_t count) {
    const Forced& code = forced(count);
    timeLoss(engine_, code.program, *data_, {});
    return code.scale *
           medianOf(context_.sample(15, 0.05, [&] { return timeLoss(engine_, code.program, *data_, {}).wall; }));
  }

  Total compiledTotal(std::size_t count, int evaluations, double seconds_each) {
    const Forced& code = forced(count);
    return {code.seconds * code.scale + evaluations * seconds_each, false};
  }

  /// The total of a tier that starts with the interpreter, and whether it started to compile.
  Total runTier(const std::vector<Expression>& expressions, Tier tier, int evaluations, double compiled_seconds,
                bool& compiles) const {
    const double bound = context_.quick ? 0.05 : 0.15, compile_bound = context_.quick ? 1 : 3;
    const double announced = evaluations;
    const Stopwatch watch;
    const Program program =
        engine_.compile(expressions, {.tier = tier, .expected_evaluations = announced, .expected_rows = data_->rows()});
    std::vector<double> last;
    bool compiling = false, has_code = false;
    int done = 0;
    while (done < evaluations) {
      const Seconds seconds = timeLoss(engine_, program, *data_, {});
      ++done;
      const ProgramStatus status = program.status();
      const bool code_now = tier == Tier::kAuto && status.tier == Tier::kCompile;
      if (code_now != has_code) last.clear();
      has_code = code_now;
      compiling = status.compiling;
      last.push_back(seconds.wall);
      const double elapsed = watch.seconds();
      if (elapsed > (compiling ? compile_bound : bound) && (last.size() >= 3 || elapsed > 4 * bound)) break;
    }
    compiles = compiling || has_code;
    const double elapsed = watch.seconds();
    if (done == evaluations) return {elapsed, true};
    const double seconds_each = medianOf(last), rest = evaluations - done;
    if (!compiling) return {elapsed + rest * seconds_each, false};
    return {stillCompiling(expressions.size(), elapsed, rest, seconds_each, compiled_seconds), false};
  }

  // Estimates the remaining evaluations of a program that is still compiling: interpreted until the code is ready.
  double stillCompiling(std::size_t count, double elapsed, double rest, double seconds_each,
                        double compiled_seconds) const {
    const Forced& code = forced_.at(count);
    const double wait = std::max(0.0, code.seconds * code.scale - elapsed);
    const double meanwhile = std::min(rest, wait / seconds_each);
    return elapsed + meanwhile * seconds_each + (rest - meanwhile) * compiled_seconds;
  }

  // Repeats short runs, since their relative noise is large.
  Total measure(std::size_t count, Tier tier, int evaluations, double compiled_seconds, bool& compiles) {
    const std::size_t most = context_.quick ? 3 : 7;
    std::vector<double> seconds;
    Total total;
    const Stopwatch watch;
    do {
      const std::vector<Expression> expressions = renamed(count, ++variant_);
      total = runTier(expressions, tier, evaluations, compiled_seconds, compiles);
      seconds.push_back(total.seconds);
      // Compilation was cancelled, but a kernel that was already started is still finished.
      if (compiles && !total.measured) std::this_thread::sleep_for(std::chrono::milliseconds(300));
    } while (seconds.size() < most && watch.seconds() < 0.05);
    total.seconds = medianOf(seconds);
    return total;
  }

  void addCell(std::size_t count, int evaluations, double compiled_seconds) {
    bool ignored = false, compiles = false;
    const Total interpreted = measure(count, Tier::kInterpret, evaluations, compiled_seconds, ignored);
    const Total compiled = compiledTotal(count, evaluations, compiled_seconds);
    const Total automatic = measure(count, Tier::kAuto, evaluations, compiled_seconds, compiles);
    const double ratio = automatic.seconds / std::min(interpreted.seconds, compiled.seconds);
    ratios_.push_back(ratio);
    cells_.push_back({{"rows", data_->rows()},
                      {"expressions", count},
                      {"evaluations", evaluations},
                      {"interpret_seconds", interpreted.seconds},
                      {"interpret_measured", interpreted.measured},
                      {"compile_seconds", compiled.seconds},
                      {"compile_population_measured", forced(count).scale == 1},
                      {"auto_seconds", automatic.seconds},
                      {"auto_measured", automatic.measured},
                      {"auto_compiles", compiles},
                      {"ratio", ratio}});
  }

  void finish(bool complete) {
    if (ratios_.empty()) return;
    const std::size_t cells = rows_.size() * counts_.size() * evaluations_.size();
    const auto above = std::count_if(ratios_.begin(), ratios_.end(), [](double ratio) { return ratio > 1.2; });
    context_.report->add("auto", {"auto over the better forced tier, compile included: the worst cell",
                                  "times",
                                  {*std::max_element(ratios_.begin(), ratios_.end())},
                                  atMost(1.2),
                                  fmt::format("{} of {} cells, {} of them above 1.2{}", ratios_.size(), cells, above,
                                              complete ? "" : "; the time was up")});
    context_.report->add("auto", {"auto over the better forced tier, all cells", "times", ratios_});
    context_.report->attach("auto", cells_);
  }

  const BenchContext& context_;
  Engine engine_;
  const std::vector<std::size_t> rows_, counts_;
  const std::vector<int> evaluations_;
  const std::vector<Expression> population_;
  std::optional<Dataset> data_;
  std::map<std::size_t, Forced> forced_;
  std::uint64_t variant_ = 0;
  std::vector<double> ratios_;
  nlohmann::ordered_json cells_ = nlohmann::ordered_json::array();
};

}  // namespace

void benchAuto(const BenchContext& context) { AutoGrid(context).run(); }

}  // namespace srjit
