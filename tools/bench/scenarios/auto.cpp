// Tier::kAuto against both forced tiers, over a grid of rows, expressions and evaluations.
//
// A total is the wall time from expressions to the losses of the last evaluation, code included. If all evaluations
// would take too long, only the first are run, and the others are estimated. An engine caches kernels, so every run has
// its variables renamed: equal cost, other keys.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include <fmt/format.h>

#include "tools/bench/work.h"

namespace srjit {
namespace {

/// Seconds from expressions to the last losses.
struct AutoTotal {
  double seconds;
  bool compiles;  ///< whether the tier made machine code
};

class AutoGrid {
 public:
  explicit AutoGrid(const Bench& bench)
      : bench_(bench), engine_(bench.engine()), population_(populationOf("mixed", kMost)) {}

  void run() {
    using Sizes = std::vector<std::size_t>;
    for (const std::size_t rows : bench_.quick ? Sizes{100, 100'000} : Sizes{100, 1000, 10'000, 100'000, 1'000'000}) {
      data_.emplace(must(engine_.upload(randomData(kTreeColumns, rows).view())));
      // Compiles the interpreter's kernels before the first measurement.
      for (const Tier tier : {Tier::kInterpret, Tier::kCompile}) {
        timeLoss(engine_, engine_.compile(renamed(10), {.tier = tier}), *data_, {});
      }
      for (const std::size_t count : bench_.quick ? Sizes{10, 100} : Sizes{10, 100, 1000, kMost}) {
        for (const std::size_t evaluations : bench_.quick ? Sizes{1, 1000} : Sizes{1, 10, 100, 1000}) {
          const Subject subject = subjectOf(count, "mixed", rows).with(fmt::format("{} evaluations", evaluations));
          if (bench_.mayBegin(subject.words)) addCell(subject, count, evaluations);
        }
      }
    }
    if (ratios_.empty()) return;
    const auto above = std::ranges::count_if(ratios_, [](double ratio) { return ratio > 1.2; });
    const Subject all{"auto over the better forced tier, compile included"};
    bench_.add(all, "all combinations", "times", ratios_);
    bench_.add(all, "the worst of them", "times", {*std::ranges::max_element(ratios_)},
               fmt::format("{} of {} combinations above 1.2", above, ratios_.size()));
  }

 private:
  static constexpr std::size_t kMost = 10'000;

  /// The first `count` expressions with permuted variables, in another order each time.
  std::vector<Expression> renamed(std::size_t count) {
    std::vector<std::uint32_t> names(kTreeColumns);
    std::iota(names.begin(), names.end(), 0U);
    Random random(++variant_);
    for (std::size_t i = names.size(); i > 1; --i) std::swap(names[i - 1], names[random.below(i)]);
    std::vector<Expression> expressions;
    expressions.reserve(count);
    for (std::size_t e = 0; e < count; ++e) {
      std::vector<Token> own(population_[e].tokens().begin(), population_[e].tokens().end());
      for (Token& token : own) {
        if (token.kind == Token::Kind::kVariable) token.index = names[token.index];
      }
      expressions.push_back(Expression::create(std::move(own)).value());
    }
    return expressions;
  }

  /// Evaluates until the time is up, which while code is made is longer; the rest takes the median of the evaluations
  /// last served in the same way.
  AutoTotal runTier(std::size_t count, Tier tier, std::size_t evaluations) {
    const std::vector<Expression> expressions = renamed(count);
    const double bound = bench_.quick ? 0.05 : 0.15, making_bound = bench_.quick ? 1 : 8;
    const CompileOptions options{
        .tier = tier, .expected_evaluations = static_cast<double>(evaluations), .expected_rows = data_->rows()};
    const Stopwatch watch;
    const Program program = makeReady(engine_, expressions, *data_, options).program;
    std::vector<double> last;
    bool has_code = false;
    std::size_t done = 0;
    while (done < evaluations) {
      const double seconds = timeLoss(engine_, program, *data_, {}).wall;
      ++done;
      const ProgramStatus status = program.status();
      if (std::exchange(has_code, status.tier == Tier::kCompile) != has_code) last.clear();
      last.push_back(seconds);
      const double elapsed = watch.seconds();
      if (elapsed > (status.compiling ? making_bound : bound) && (last.size() >= 3 || elapsed > 4 * bound)) break;
    }
    return {watch.seconds() + static_cast<double>(evaluations - done) * medianOf(last), has_code};
  }

  // Repeats short runs, since their relative noise is large.
  AutoTotal total(std::size_t count, Tier tier, std::size_t evaluations) {
    std::vector<double> seconds;
    AutoTotal one{};
    const Stopwatch watch;
    do {
      one = runTier(count, tier, evaluations);
      seconds.push_back(one.seconds);
    } while (seconds.size() < (bench_.quick ? 3 : 7) && watch.seconds() < 0.05);
    return {medianOf(seconds), one.compiles};
  }

  // Machine code of many expressions takes longer to make than all else; there the interpreter is the better one.
  void addCell(const Subject& subject, std::size_t count, std::size_t evaluations) {
    const double interpreted = total(count, Tier::kInterpret, evaluations).seconds;
    const AutoTotal own = total(count, Tier::kAuto, evaluations);
    const double machine = count < kMost ? total(count, Tier::kCompile, evaluations).seconds : double{INFINITY};
    ratios_.push_back(own.seconds / std::min(interpreted, machine));
    bench_.add(subject.with("", {{"evaluations", evaluations},
                                 {"interpreted", interpreted},
                                 {"compiled", machine},
                                 {"auto", own.seconds},
                                 {"auto_compiles", own.compiles}}),
               "auto over the better forced tier", "times", {ratios_.back()});
  }

  const Bench& bench_;
  const Engine engine_;
  const std::vector<Expression> population_;
  std::optional<Dataset> data_;
  std::uint64_t variant_ = 0;
  std::vector<double> ratios_;
};

}  // namespace

void benchAuto(const Bench& bench) { AutoGrid(bench).run(); }

}  // namespace srjit
