// Tier::kAuto against both forced tiers, over a grid of rows, expressions and passes.
//
// A total is what a user waits for: from expressions to the losses of the last pass. Where all passes would take too
// long, the first are run, and the others counted at the median time of the last of these ("measured" is then false).
// The forced compiled tier pays for its kernels once a population, which do not depend on the rows;
// populations that would take too long to compile are counted at multiples of the next smaller one. Kernels are
// kept by an engine, so every population that kAuto gets has its variables renamed: as costly, but of another key.
#include <algorithm>
#include <chrono>
#include <map>
#include <numeric>
#include <thread>

#include <fmt/format.h>
#include <tbb/parallel_for.h>

#include "tools/bench/gpu_bench.h"

namespace srjit {
namespace {

constexpr std::size_t kColumns = 10;

struct Total {
  double seconds = 0;
  bool measured = false;
};

/// Machine code of the first `expressions` of the population; `scale` times as many are counted at as many times the
/// cost.
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
        passes_(context.quick ? std::vector<int>{1, 1000} : std::vector<int>{1, 10, 100, 1000}),
        population_(populationOf("mixed", counts_.back())) {}

  void run() {
    for (const std::size_t rows : rows_) {
      data_.emplace(must(engine_.upload(BenchData(kColumns, rows).view())));
      warmUp();
      for (const std::size_t count : counts_) {
        const double compiled_pass = forcedPass(count);
        for (const int passes : passes_) {
          if (context_.left() < 0) return finish(false);
          addCell(count, passes, compiled_pass);
        }
      }
    }
    finish(true);
  }

 private:
  // The kernels of the interpreter are made by whoever comes first. No population that is measured may find its own
  // kernels made.
  void warmUp() {
    const std::vector<Expression> few = renamed(counts_.front(), ++variant_);
    for (const Tier tier : {Tier::kInterpret, Tier::kCompile}) {
      must(engine_.loss(engine_.compile(few, {.tier = tier}), *data_, {}));
    }
  }

  /// Variables renamed in the `number`th way.
  std::vector<Expression> renamed(std::size_t count, std::uint64_t number) const {
    std::vector<std::uint32_t> names(kColumns);
    std::iota(names.begin(), names.end(), 0U);
    Random random(number);
    for (std::size_t i = kColumns; i > 1; --i) std::swap(names[i - 1], names[random.below(i)]);
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

  /// Seconds of one pass of compiled code.
  double forcedPass(std::size_t count) {
    const Forced& code = forced(count);
    timeLoss(engine_, code.program, *data_, {});
    return code.scale *
           medianOf(context_.sample(15, 0.05, [&] { return timeLoss(engine_, code.program, *data_, {}).wall; }));
  }

  Total compiledTotal(std::size_t count, int passes, double pass) {
    const Forced& code = forced(count);
    return {code.seconds * code.scale + passes * pass, false};
  }

  /// What a tier that begins by interpreting takes, and whether it began to compile.
  Total runTier(const std::vector<Expression>& expressions, Tier tier, int passes, double compiled_pass,
                bool& compiles) const {
    const double bound = context_.quick ? 0.05 : 0.15, compile_bound = context_.quick ? 1 : 3;
    const double announced = passes;
    const Stopwatch watch;
    const Program program =
        engine_.compile(expressions, {.tier = tier, .expected_evaluations = announced, .expected_rows = data_->rows()});
    std::vector<double> last;
    bool compiling = false, has_code = false;
    int done = 0;
    while (done < passes) {
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
    if (done == passes) return {elapsed, true};
    const double pass = medianOf(last), rest = passes - done;
    if (!compiling) return {elapsed + rest * pass, false};
    return {stillCompiling(expressions.size(), elapsed, rest, pass, compiled_pass), false};
  }

  // The rest of the passes of a program whose code is not there yet: interpreted until it is.
  double stillCompiling(std::size_t count, double elapsed, double rest, double pass, double compiled_pass) const {
    const Forced& code = forced_.at(count);
    const double wait = std::max(0.0, code.seconds * code.scale - elapsed);
    const double meanwhile = std::min(rest, wait / pass);
    return elapsed + meanwhile * pass + (rest - meanwhile) * compiled_pass;
  }

  // Short runs are repeated, since any disturbance is a large part of them.
  Total measure(std::size_t count, Tier tier, int passes, double compiled_pass, bool& compiles) {
    const std::size_t most = context_.quick ? 3 : 7;
    std::vector<double> seconds;
    Total total;
    const Stopwatch watch;
    do {
      const std::vector<Expression> expressions = renamed(count, ++variant_);
      total = runTier(expressions, tier, passes, compiled_pass, compiles);
      seconds.push_back(total.seconds);
      // What is being compiled was cancelled, but a kernel that was begun is finished.
      if (compiles && !total.measured) std::this_thread::sleep_for(std::chrono::milliseconds(300));
    } while (seconds.size() < most && watch.seconds() < 0.05);
    total.seconds = medianOf(seconds);
    return total;
  }

  void addCell(std::size_t count, int passes, double compiled_pass) {
    bool ignored = false, compiles = false;
    const Total interpreted = measure(count, Tier::kInterpret, passes, compiled_pass, ignored);
    const Total compiled = compiledTotal(count, passes, compiled_pass);
    const Total automatic = measure(count, Tier::kAuto, passes, compiled_pass, compiles);
    const double ratio = automatic.seconds / std::min(interpreted.seconds, compiled.seconds);
    ratios_.push_back(ratio);
    cells_.push_back({{"rows", data_->rows()},
                      {"expressions", count},
                      {"passes", passes},
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
    const std::size_t cells = rows_.size() * counts_.size() * passes_.size();
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
  const std::vector<int> passes_;
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
