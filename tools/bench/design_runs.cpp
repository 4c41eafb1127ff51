#include "tools/bench/work.h"

#include <algorithm>
#include <array>
#include <memory>
#include <optional>

#include <fmt/format.h>

namespace srjit {
namespace {

constexpr std::size_t kFirstSize = 32, kMostSteps = 100, kMostGenerations = 15, kQuickSteps = 5;
constexpr double kLeastSeconds = 0.5, kQuickLeastSeconds = 0.05;  // per design

/// Times one design. Throws what the design throws.
class DesignTimer {
 public:
  /// Constructs the design; fails on a machine that cannot run it. `data` must outlive this.
  DesignTimer(const Bench& bench, const BaselineInfo& info, const BenchData& data)
      : data_(data), design_(info.make(data, bench.ordinal())) {}

  /// Prepares it for these expressions, which must outlive the steps; returns seconds. The next step has number 0.
  double prepare(std::span<const Expression> expressions) {
    expressions_ = expressions;
    const std::size_t parameters = parametersOf(expressions);
    numbers_.clear();
    for (int step = 0; step < 4; ++step) numbers_.push_back(parameterNumbers(parameters, step));
    next_ = 0;
    sums_.assign(expressions.size(), 0);
    predictions_.clear();
    const Stopwatch watch;
    design_->prepare(expressions);
    return watch.seconds();
  }

  /// One step with the parameters parameterNumbers(count, step number % 4). Kernel time is by the device's clock.
  Seconds step(bool predictions) {
    last_ = std::exchange(next_, (next_ + 1) % numbers_.size());
    if (predictions) predictions_.resize(expressions_.size() * data_.rows());
    const Stopwatch watch;
    if (predictions) {
      design_->predictions(numbers_[last_], predictions_);
    } else {
      design_->losses(numbers_[last_], sums_);
    }
    return {watch.seconds(), design_->kernelSeconds()};
  }

  /// Checks predictions and sums of a sample of expressions (checkBaseline()); to be prepared again afterwards.
  std::string check(std::span<const Expression> expressions) {
    const std::vector<double> parameters = parameterNumbers(parametersOf(expressions), 1);
    // Few expressions, since preparation is slow in some designs.
    return checkBaseline(*design_, expressions, data_, parameters, 1, 16, 64).text();
  }

  /// Compares the sums of the last step of losses with sr-jit's, on the processor in `precise`: designs compute
  /// expressions as written, while rules of `fast` give numbers where designs give NaN (docs/accuracy.md).
  SumAgreement compared() const {
    const Engine engine = must(Engine::create({.device = "cpu", .math = Math::kPrecise}));
    const Program program = engine.compile(expressions_, {.tier = Tier::kInterpret});
    const Dataset data = must(engine.upload(data_.view()));
    const Losses own = must(engine.loss(program, data, numbers_[last_], {.kind = LossKind::kSse}));
    return compareSums(sums_, own.values, data_.target);
  }

 private:
  const BenchData& data_;
  const std::unique_ptr<Baseline> design_;
  std::span<const Expression> expressions_;
  std::vector<std::vector<double>> numbers_;
  std::size_t next_ = 0, last_ = 0;
  std::vector<double> sums_;
  std::vector<float> predictions_;
};

/// Times of `count` expressions; steps for losses and for predictions.
struct SizeSeconds {
  std::size_t count = 0;
  double prepare = 0;
  std::array<Seconds, 2> step{};
};

/// Runs one design on as many expressions as its share of the time allows.
class DesignRun {
 public:
  DesignRun(const Bench& bench, const BaselineInfo& info, const DesignWork& work, double seconds)
      : bench_(bench), info_(info), work_(work), seconds_(seconds), timer_(bench, info, work.data) {}

  void run() {
    note_ = fmt::format("{}; {}", info_.doc, timer_.check(work_.expressions));
    grow();
    timer_.step(false);
    const SumAgreement agreement = timer_.compared();
    const std::size_t measured = sizes_.back().count;
    fewer_ = measured < work_.expressions.size();
    note_ += fmt::format("; {}; {} of {} expressions", agreement.text(), measured, work_.expressions.size());
    subject_ = work_.subject.with(info_.name, {{"design", info_.name},
                                               {"measured", measured},
                                               {"sums_compared", agreement.compared},
                                               {"sums_finite", agreement.finite}});
    if (work_.renewed) return generations(seconds_ - watch_.seconds());
    const std::vector<bool> kinds = wanted();
    for (std::size_t i = 0; i < kinds.size(); ++i) {
      steps(kinds[i], (seconds_ - watch_.seconds()) / static_cast<double>(kinds.size() - i));
    }
  }

 private:
  /// The selected results; true for predictions.
  std::vector<bool> wanted() const {
    std::vector<bool> kinds;
    if (bench_.losses) kinds.push_back(false);
    if (bench_.predictions) kinds.push_back(true);
    return kinds;
  }

  /// Measures growing numbers of expressions in at most half of the time.
  void grow() {
    const std::size_t all = work_.expressions.size();
    for (std::size_t count = std::min(std::max(kFirstSize, info_.unit), all);;) {
      const Stopwatch watch;
      expressions_ = evenlySpread(work_.expressions, count);
      SizeSeconds& size = sizes_.emplace_back(SizeSeconds{.count = count, .prepare = timer_.prepare(expressions_)});
      for (const bool predictions : wanted()) {
        timer_.step(predictions);
        size.step[predictions] = timer_.step(predictions);
      }
      const double could = (seconds_ / 2 - watch_.seconds()) / watch.seconds() * static_cast<double>(count);
      if (count == all || could < static_cast<double>(2 * count)) break;
      count = could < static_cast<double>(all) ? static_cast<std::size_t>(could) / info_.unit * info_.unit : all;
    }
  }

  /// Extrapolates `seconds` of the largest size to all expressions, along the line through the two largest sizes, or
  /// proportionally if there is only one. The slope is clamped, so that the time neither falls with the size nor is
  /// negative for size 0.
  template <class Of>
  double ofAll(double seconds, const Of& of) const {
    const SizeSeconds& last = sizes_.back();
    const auto count = static_cast<double>(last.count);
    double slope = of(last) / count;
    if (sizes_.size() > 1) {
      const SizeSeconds& before = sizes_[sizes_.size() - 2];
      slope = std::clamp((of(last) - of(before)) / (count - static_cast<double>(before.count)), 0.0, slope);
    }
    return seconds + slope * (static_cast<double>(work_.expressions.size()) - count);
  }
  double prepareOfAll(double seconds) const {
    return ofAll(seconds, [](const SizeSeconds& size) { return size.prepare; });
  }
  /// Adds a step of all expressions.
  void addStep(Series& series, const Seconds& step, bool predictions) const {
    series.add({ofAll(step.wall, [=](const SizeSeconds& size) { return size.step[predictions].wall; }),
                ofAll(step.device, [=](const SizeSeconds& size) { return size.step[predictions].device; })});
  }

  void steps(bool predictions, double seconds) {
    Series series;
    const std::size_t most = bench_.quick ? kQuickSteps : kMostSteps;
    const Stopwatch watch;
    do {
      addStep(series, timer_.step(predictions), predictions);
    } while (series.wall.size() < most && watch.seconds() < seconds);
    const double prepare = prepareOfAll(sizes_.back().prepare);
    const double total = work_.frontend_seconds + prepare + work_.steps * medianOf(series.wall);
    const char* const result = predictions ? "predictions" : "losses";
    const Subject subject = subject_.with(result, {{"result", result}});
    bench_.add(subject, "to last result", "s", {total},
               fmt::format("{}, {} of {} steps", note_, series.wall.size(), work_.steps),
               fewer_ || series.wall.size() < static_cast<std::size_t>(work_.steps));
    bench_.add(subject, "making ready", "s", {prepare}, {}, fewer_);
    bench_.add(subject, "one step", "ms", series.wall, {}, fewer_);
    const double work = nodesOf(work_.expressions) * static_cast<double>(work_.data.rows());
    bench_.add(subject, "rate of the kernels", "T nodes/s", series.rates(work), {}, fewer_);
  }

  /// Samples of preparation and one step together, each for new expressions.
  void generations(double seconds) {
    std::vector<double> totals, prepares;
    Series series;
    const std::size_t most = bench_.quick ? kQuickSteps : kMostGenerations;
    const Stopwatch watch;
    do {
      expressions_ = evenlySpread(work_.renewed(), sizes_.back().count);
      prepares.push_back(prepareOfAll(timer_.prepare(expressions_)));
      addStep(series, timer_.step(false), false);
      totals.push_back(prepares.back() + series.wall.back());
    } while (totals.size() < most && watch.seconds() < seconds);
    bench_.add(subject_, "expressions to losses", "ms", totals, note_, fewer_);
    bench_.add(subject_, "of that, making ready", "ms", prepares, {}, fewer_);
    bench_.add(subject_, "of that, kernels", "ms", series.device, {}, fewer_);
  }

  const Bench& bench_;
  const BaselineInfo& info_;
  const DesignWork& work_;
  const double seconds_;
  const Stopwatch watch_;
  DesignTimer timer_;
  Subject subject_;
  std::string note_;
  bool fewer_ = false;
  std::vector<Expression> expressions_;
  std::vector<SizeSeconds> sizes_;
};

void runDesign(const Bench& bench, const BaselineInfo& info, const DesignWork& work, double seconds) {
  const auto skip = [&](const std::string& reason) { bench.report->addNotRun(bench.scenario, info.name, reason); };
  if (seconds < (bench.quick ? kQuickLeastSeconds : kLeastSeconds)) return skip("no time");
  std::optional<DesignRun> design;
  if (const Status made = caught([&] { design.emplace(bench, info, work, seconds); }); !made) {
    return skip(made.error().message);
  }
  if (const Status done = caught([&] { design->run(); }); !done) {
    bench.report->addFault(bench.scenario, fmt::format("{}: {}", info.name, done.error().message));
  }
}

}  // namespace

void runDesigns(const Bench& bench, const DesignWork& work, double seconds) {
  if (!bench.designs) return;
  std::vector<BaselineInfo> all;
  for (const BaselineInfo& info : allBaselines()) {
    if (!work.renewed || !info.compiles) all.push_back(info);
  }
  for (std::size_t i = 0; i < all.size(); ++i) {
    // Time that one design does not use is shared by the next ones.
    const double share = std::min(seconds, bench.left()) / static_cast<double>(all.size() - i);
    const Stopwatch watch;
    runDesign(bench, all[i], work, share);
    seconds -= watch.seconds();
  }
}

}  // namespace srjit
