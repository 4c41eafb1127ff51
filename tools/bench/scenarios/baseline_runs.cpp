#include "tools/bench/scenarios/baseline_runs.h"

#include <algorithm>

#include <fmt/format.h>

#include "runtime/cuda_context.h"
#include "tools/bench/baselines/baseline_check.h"

namespace srjit {
namespace {

using Json = nlohmann::ordered_json;

// Preparing is slow in some designs.
constexpr BaselineCheckOptions kCheck = {.seed = 1, .expressions = 16, .rows = 64};
constexpr std::size_t kFirstTry = 16;
constexpr int kMostSteps = 100;

class Timing {
 public:
  Timing(const BenchContext& context, const BaselineInfo& info, const BaselineWork& work)
      : context_(context),
        info_(info),
        work_(work),
        data_{context.onGpu() ? context.ordinal() : 0, work.data.columns, work.data.target},
        baseline_(info.make(data_)) {}

  void check() {
    const std::vector<double> parameters = parameterNumbers(parametersOf(work_.expressions), 1);
    checked_ = checkBaseline(*baseline_, work_.expressions, data_, parameters, kCheck).text();
  }

  /// As many expressions as half of the seconds allow.
  void prepare(double seconds) {
    const std::size_t all = work_.expressions.size();
    for (std::size_t count = std::min(kFirstTry, all);;) {
      expressions_ = evenlySpread(work_.expressions, count);
      const Stopwatch watch;
      baseline_->prepare(expressions_);
      prepare_seconds_ = watch.seconds();
      const double could = seconds / 2 / prepare_seconds_ * static_cast<double>(count);
      if (count == all || could < 2 * static_cast<double>(count)) break;
      count = static_cast<std::size_t>(std::min(could, static_cast<double>(all)));
    }
  }

  Json steps(bool predictions, double seconds) {
    const std::size_t parameters = parametersOf(expressions_);
    std::vector<std::vector<double>> numbers;
    for (int step = 0; step < 4; ++step) numbers.push_back(parameterNumbers(parameters, step));
    std::vector<double> sums(expressions_.size()), times, kernels;
    std::vector<float> out(predictions ? expressions_.size() * work_.data.rows() : 0);
    const auto step = [&](std::size_t number) {
      const auto& own = numbers[number % numbers.size()];
      if (predictions) {
        baseline_->predictions(own, out);
      } else {
        baseline_->losses(own, sums);
      }
    };
    const Stopwatch all;
    step(0);
    const std::size_t most = static_cast<std::size_t>(std::clamp(work_.steps, 5, context_.quick ? 5 : kMostSteps));
    do {
      const Stopwatch watch;
      step(times.size() + 1);
      times.push_back(watch.seconds());
      kernels.push_back(baseline_->kernelSeconds());
    } while (times.size() < most && all.seconds() < seconds);
    return report(predictions, times, medianOf(kernels));
  }

 private:
  Json report(bool predictions, const std::vector<double>& times, double kernels) {
    const double scale = static_cast<double>(work_.expressions.size()) / static_cast<double>(expressions_.size());
    const bool extrapolated = scale > 1 || times.size() < static_cast<std::size_t>(work_.steps);
    const char* const result = predictions ? "predictions" : "losses";
    std::vector<double> totals, scaled;
    for (const double time : times) {
      scaled.push_back(time * scale * 1e3);
      totals.push_back(work_.frontend_seconds + scale * (prepare_seconds_ + work_.steps * time));
    }
    const std::string what = fmt::format("{}, {}: {}, ", work_.what, result, info_.name);
    const std::string note = fmt::format("{}; {} of {} expressions, {} of {} steps; {}", info_.doc, expressions_.size(),
                                         work_.expressions.size(), times.size(), work_.steps, checked_);
    context_.report->add(work_.part, {what + "text to last result", "s", totals, {}, note, extrapolated});
    context_.report->add(work_.part, {what + "one step", "ms", scaled, {}, {}, scale > 1});
    return {{"name", info_.name},
            {"doc", info_.doc},
            {"result", result},
            {"total_seconds", medianOf(totals)},
            {"prepare_seconds", prepare_seconds_ * scale},
            {"step_seconds", medianOf(scaled) / 1e3},
            {"step_quartiles", {quantileOf(scaled, 0.25) / 1e3, quantileOf(scaled, 0.75) / 1e3}},
            {"kernel_seconds", kernels * scale},
            {"expressions_measured", expressions_.size()},
            {"steps_measured", times.size()},
            {"extrapolated", extrapolated},
            {"check", checked_}};
  }

  const BenchContext& context_;
  const BaselineInfo& info_;
  const BaselineWork& work_;
  const BaselineData data_;
  std::unique_ptr<Baseline> baseline_;
  std::string checked_;
  std::vector<Expression> expressions_;
  double prepare_seconds_ = 0;
};

void runOne(const BenchContext& context, const BaselineInfo& info, const BaselineWork& work, double seconds,
            Json& rows) {
  const int kinds = int{context.losses} + int{context.predictions};
  std::optional<Timing> timing;
  try {
    timing.emplace(context, info, work);
    timing->check();
    timing->prepare(seconds / 2);
  } catch (const CudaFailure& failure) {
    rows.push_back({{"name", info.name}, {"not_run", failure.error().message}});
    return;
  }
  for (const bool predictions : {false, true}) {
    if (!(predictions ? context.predictions : context.losses)) continue;
    rows.push_back(timing->steps(predictions, seconds / 2 / kinds));
  }
}

}  // namespace

std::vector<Expression> evenlySpread(std::span<const Expression> expressions, std::size_t count) {
  std::vector<Expression> chosen;
  chosen.reserve(count);
  for (std::size_t i = 0; i < count; ++i) chosen.push_back(expressions[i * expressions.size() / count]);
  return chosen;
}

std::size_t parametersOf(std::span<const Expression> expressions) {
  std::size_t count = 0;
  for (const Expression& expression : expressions) count += expression.parameterCount();
  return count;
}

Json runBaselines(const BenchContext& context, const BaselineWork& work, double seconds) {
  Json rows = Json::array();
  if (!context.baselines) return rows;
  const std::span<const BaselineInfo> all = allBaselines();
  for (std::size_t i = 0; i < all.size(); ++i) {
    // What one leaves of its share is the others'.
    const double share = std::min(seconds, context.left()) / static_cast<double>(all.size() - i);
    const Stopwatch watch;
    try {
      runOne(context, all[i], work, std::max(share, 0.0), rows);
    } catch (const BenchFailure& failure) {
      context.report->addFault(work.part, fmt::format("{}: {}", all[i].name, failure.error.message));
      rows.push_back({{"name", all[i].name}, {"not_run", failure.error.message}});
    }
    seconds -= watch.seconds();
  }
  return rows;
}

}  // namespace srjit
