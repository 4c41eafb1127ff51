#include "tools/bench/scenarios/baseline_runs.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "tools/progress.h"

namespace srjit {
namespace {

using Json = nlohmann::ordered_json;

// Small, since preparation is slow in some designs.
constexpr BaselineCheckOptions kCheck = {.seed = 1, .expressions = 16, .rows = 64};
constexpr std::size_t kFirstSize = 32;
constexpr std::size_t kMostSteps = 100, kMostGenerations = 15, kQuickSteps = 5;
constexpr double kLeastSeconds = 0.5, kQuickLeastSeconds = 0.05;  // per design

/// Times of `count` expressions; steps and kernels for losses and for predictions.
struct SizeSeconds {
  std::size_t count = 0;
  double prepare = 0;
  std::array<double, 2> step{}, kernels{};
};

/// Runs one design on as many expressions as its share of the time allows.
class DesignRun {
 public:
  DesignRun(const BenchContext& context, const BaselineInfo& info, const BaselineWork& work, const OwnSums& own,
            double seconds)
      : context_(context),
        info_(info),
        work_(work),
        own_(own),
        seconds_(seconds),
        progress_(fmt::format("{}, {}", work.part, info.name), 100, false),
        timer_(context, info, work.data) {}

  void run(Json& rows) {
    const std::vector<double> parameters = parameterNumbers(parametersOf(work_.expressions), 1);
    checked_ = checkBaseline(timer_.baseline(), work_.expressions, timer_.data(), parameters, kCheck).text();
    grow();
    timer_.step(false);
    agreement_ = own_.compareWith(timer_);
    checked_ += "; " + agreement_.text();
    if (work_.renewed) {
      rows.push_back(generations(seconds_ - watch_.seconds()));
      return;
    }
    const std::vector<bool> kinds = wanted();
    for (std::size_t i = 0; i < kinds.size(); ++i) {
      const double left = seconds_ - watch_.seconds();
      rows.push_back(steps(kinds[i], left / static_cast<double>(kinds.size() - i)));
    }
  }

 private:
  /// The selected results; true for predictions.
  std::vector<bool> wanted() const {
    std::vector<bool> kinds;
    if (context_.losses) kinds.push_back(false);
    if (context_.predictions) kinds.push_back(true);
    return kinds;
  }

  void show() {
    const auto part = static_cast<std::size_t>(std::clamp(100 * watch_.seconds() / seconds_, 0.0, 100.0));
    progress_.advance(part - std::exchange(shown_, std::max(part, shown_)));
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
        size.kernels[predictions] = timer_.kernelSeconds();
      }
      show();
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

  Json steps(bool predictions, double seconds) {
    std::vector<double> times, kernels;
    const std::size_t most = context_.quick ? kQuickSteps : kMostSteps;
    const Stopwatch watch;
    do {
      const double time = timer_.step(predictions);
      times.push_back(ofAll(time, [=](const SizeSeconds& size) { return size.step[predictions]; }));
      kernels.push_back(
          ofAll(timer_.kernelSeconds(), [=](const SizeSeconds& size) { return size.kernels[predictions]; }));
      show();
    } while (times.size() < most && watch.seconds() < seconds);
    return report(predictions, times, medianOf(kernels));
  }

  Json report(bool predictions, const std::vector<double>& times, double kernels) {
    const std::size_t all = work_.expressions.size(), measured = sizes_.back().count;
    const bool fewer = measured < all, extrapolated = fewer || times.size() < static_cast<std::size_t>(work_.steps);
    const char* const result = predictions ? "predictions" : "losses";
    const double prepare = ofAll(sizes_.back().prepare, [](const SizeSeconds& size) { return size.prepare; });
    const double step = medianOf(times), total = work_.frontend_seconds + prepare + work_.steps * step;
    const std::string what = fmt::format("{}, {}: {}, ", work_.what, result, info_.name);
    const std::string note = fmt::format("{}; {} of {} expressions, {} of {} steps; {}", info_.doc, measured, all,
                                         times.size(), work_.steps, checked_);
    std::vector<double> milliseconds;
    for (const double time : times) milliseconds.push_back(time * 1e3);
    context_.report->add(work_.part, {what + "text to last result", "s", {total}, {}, note, extrapolated});
    context_.report->add(work_.part, {what + "one step", "ms", milliseconds, {}, {}, fewer});
    Json row = details(predictions, extrapolated);
    row["total_seconds"] = total;
    row["prepare_seconds"] = prepare;
    row["step_seconds"] = step;
    row["step_quartiles"] = {quantileOf(times, 0.25), quantileOf(times, 0.75)};
    row["kernel_seconds"] = kernels;
    row["steps_measured"] = times.size();
    return row;
  }

  /// Samples of preparation and one step together, each for new expressions.
  Json generations(double seconds) {
    std::vector<double> totals, prepares, kernels;
    const std::size_t most = context_.quick ? kQuickSteps : kMostGenerations, measured = sizes_.back().count;
    const Stopwatch watch;
    do {
      expressions_ = evenlySpread(work_.renewed(), measured);
      const double prepare = timer_.prepare(expressions_), step = timer_.step(false);
      totals.push_back(ofAll(prepare + step, [](const SizeSeconds& size) { return size.prepare + size.step[0]; }));
      prepares.push_back(ofAll(prepare, [](const SizeSeconds& size) { return size.prepare; }));
      kernels.push_back(ofAll(timer_.kernelSeconds(), [](const SizeSeconds& size) { return size.kernels[0]; }));
      show();
    } while (totals.size() < most && watch.seconds() < seconds);
    const bool fewer = measured < work_.expressions.size();
    const std::string what = fmt::format("{}: {}, ", work_.what, info_.name);
    const std::string note =
        fmt::format("{}; {} of {} expressions; {}", info_.doc, measured, work_.expressions.size(), checked_);
    const auto add = [&](const char* name, std::vector<double> samples, const std::string& about) {
      for (double& sample : samples) sample *= 1e3;
      context_.report->add(work_.part, {what + name, "ms", std::move(samples), {}, about, fewer});
    };
    add("expressions to losses", totals, note);
    add("of that, making ready", prepares, {});
    add("of that, kernels", kernels, {});
    Json row = details(false, fewer);
    row["total_seconds"] = medianOf(totals);
    row["total_quartiles"] = {quantileOf(totals, 0.25), quantileOf(totals, 0.75)};
    row["prepare_seconds"] = medianOf(prepares);
    row["kernel_seconds"] = medianOf(kernels);
    row["generations_measured"] = totals.size();
    return row;
  }

  /// What all kinds of measurements have in common.
  Json details(bool predictions, bool extrapolated) const {
    Json sizes = Json::array();
    for (const SizeSeconds& size : sizes_) sizes.push_back({size.count, size.prepare, size.step[predictions]});
    return {{"name", info_.name},
            {"doc", info_.doc},
            {"result", predictions ? "predictions" : "losses"},
            {"expressions_measured", sizes_.back().count},
            {"count_prepare_step_seconds", std::move(sizes)},
            {"extrapolated", extrapolated},
            {"sums_compared", agreement_.compared},
            {"sums_finite", agreement_.finite},
            {"sums_same", agreement_.same},
            {"check", checked_}};
  }

  const BenchContext& context_;
  const BaselineInfo& info_;
  const BaselineWork& work_;
  const OwnSums& own_;
  const double seconds_;
  const Stopwatch watch_;
  Progress progress_;
  std::size_t shown_ = 0;
  BaselineTimer timer_;
  std::string checked_;
  SumAgreement agreement_;
  std::vector<Expression> expressions_;
  std::vector<SizeSeconds> sizes_;
};

void runDesign(const BenchContext& context, const BaselineInfo& info, const BaselineWork& work, const OwnSums& own,
               double seconds, Json& rows) {
  const auto skip = [&](const std::string& reason) {
    context.report->addNotRun(work.part, info.name, reason);
    rows.push_back({{"name", info.name}, {"not_run", reason}});
  };
  if (seconds < (context.quick ? kQuickLeastSeconds : kLeastSeconds)) return skip("no time");
  std::optional<DesignRun> design;
  if (const Status made = caught([&] { design.emplace(context, info, work, own, seconds); }); !made) {
    return skip(made.error().message);
  }
  if (const Status done = caught([&] { design->run(rows); }); !done) {
    context.report->addFault(work.part, fmt::format("{}: {}", info.name, done.error().message));
    rows.push_back({{"name", info.name}, {"failed", done.error().message}});
  }
}

}  // namespace

std::vector<Expression> evenlySpread(std::span<const Expression> expressions, std::size_t count) {
  std::vector<Expression> chosen;
  chosen.reserve(count);
  for (std::size_t i = 0; i < count; ++i) chosen.push_back(expressions[i * expressions.size() / count]);
  return chosen;
}

OwnSums::OwnSums(const DataView& data)
    : engine_(must(Engine::create({.device = "cpu", .math = Math::kPrecise}))), data_(must(engine_.upload(data))) {}

SumAgreement OwnSums::compareWith(const BaselineTimer& timer) const {
  const Program program = engine_.compile(timer.expressions(), {.tier = Tier::kInterpret});
  const Losses own = must(engine_.loss(program, data_, timer.parameters(), {.kind = LossKind::kSse}));
  return compareSums(timer.sums(), own.values, timer.data().target);
}

Json runBaselines(const BenchContext& context, const BaselineWork& work, double seconds) {
  Json rows = Json::array();
  if (!context.baselines) return rows;
  std::optional<OwnSums> own;
  if (const Status made = caught([&] { own.emplace(work.data.view()); }); !made) {
    context.report->addFault(work.part, "baselines: " + made.error().message);
    return rows;
  }
  std::vector<BaselineInfo> all(allBaselines().begin(), allBaselines().end());
  if (work.renewed) std::erase_if(all, [](const BaselineInfo& info) { return info.compiles; });
  for (std::size_t i = 0; i < all.size(); ++i) {
    // Time that one design does not use is shared by the next ones.
    const double share = std::min(seconds, context.left()) / static_cast<double>(all.size() - i);
    const Stopwatch watch;
    runDesign(context, all[i], work, *own, share, rows);
    seconds -= watch.seconds();
  }
  return rows;
}

}  // namespace srjit
