// Engine::fit() and submitFit().
#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "runtime/engine.h"
#include "runtime/engine_tasks.h"
#include "runtime/evaluation/loss_terms.h"
#include "runtime/platform/guarded.h"
#include "runtime/population_fit.h"

namespace srjit {
namespace {

Status checkFit(const Program& program, std::span<const double> starts, const FitOptions& options) {
  const std::size_t all = program.parameterOffset(program.size());
  if (starts.empty() && all > 0) return Error{Errc::kInvalid, "no start for the parameters", {}};
  if (all == 0 ? !starts.empty() : starts.size() % all != 0) {
    return Error{Errc::kInvalid,
                 fmt::format("{} start values: expected a multiple of the program's {} parameters", starts.size(), all),
                 {}};
  }
  if (options.iterations == 0) return Error{Errc::kInvalid, "0 iterations: expected at least 1", {}};
  if (!options.loss.custom && !canBeFitted(infoOf(options.loss.kind))) {
    return Error{Errc::kInvalid,
                 fmt::format("{} cannot be fitted: expected a loss that is smallest for the best predictions",
                             infoOf(options.loss.kind).name),
                 {}};
  }
  return okStatus();
}

}  // namespace

bool canBeFitted(const LossInfo& loss) noexcept {
  return loss.term ? *loss.term != LossTerm::kPrediction : loss.kind != LossKind::kCorrelation;
}

std::string_view nameOf(FitStatus status) noexcept {
  switch (status) {
    case FitStatus::kRunning:
      return "running";
    case FitStatus::kConverged:
      return "converged";
    case FitStatus::kIterations:
      return "iterations";
    case FitStatus::kNoProgress:
      return "failed: no step lowers the loss";
    case FitStatus::kNotFinite:
      return "failed: the start gives no finite loss and derivatives";
    case FitStatus::kSingular:
      return "failed: no parameter has an effect";
    case FitStatus::kCancelled:
      return "failed: cancelled";
    case FitStatus::kFailed:
      return "failed: an error";
    case FitStatus::kNoParameters:
      return "no parameters";
  }
  __builtin_unreachable();
}

namespace {

Result<Fits> fitProgram(Engine::State& engine, const Program& program, const Dataset& data,
                        std::span<const double> starts, const FitOptions& options, const Deadline& deadline) {
  return guarded([&]() -> Result<Fits> {
    if (Status own = engine.checkProcess(); !own) return std::move(own).error();
    if (Status valid = checkFit(program, starts, options); !valid) return std::move(valid).error();
    const std::size_t count = program.parameterOffset(program.size());
    const std::size_t start_count = count == 0 ? 1 : starts.size() / count;
    if (Status few = engine.checkCallNodes(program.state().source->tokens, start_count); !few) {
      return std::move(few).error();
    }
    Task base{.program = program,
              .data = data,
              .parameters = starts.first(count),
              .loss = options.loss,
              .deadline = deadline};
    if (Status valid = checkTask(base, engine.options); !valid) return std::move(valid).error();
    Result<Dataset> behind = engine.executor->withTargetBehind(data);
    if (!behind) return std::move(behind).error();
    base.data = std::move(*behind);
    return PopulationFit(engine, std::move(base), starts, options).run();
  });
}

/// Fits on a thread of their own, which waits for the device between two passes.
class PendingFits final : public Pending<Fits>::State {
 public:
  PendingFits(std::shared_ptr<Engine::State> engine, Program program, Dataset data, std::span<const double> starts,
              FitOptions options)
      : engine_(std::move(engine)) {
    auto fit = [this, program = std::move(program), data = std::move(data),
                own_starts = std::vector<double>(starts.begin(), starts.end()), options = std::move(options),
                deadline = engine_->deadline()] {
      fits_.emplace(fitProgram(*engine_, program, data, own_starts, options, deadline));
      is_done_ = true;
      is_done_.notify_all();
    };
    try {
      thread_ = std::make_unique<std::thread>(std::move(fit));
    } catch (const std::system_error& failure) {
      throw ErrorException(
          {Errc::kMachine, fmt::format("cannot start a thread for a fit: {}", failure.code().message()), {}});
    }
  }
  PendingFits(const PendingFits&) = delete;
  PendingFits& operator=(const PendingFits&) = delete;
  // A child of a fork() has no such thread.
  ~PendingFits() override {
    if (isForked()) {
      [[maybe_unused]] const std::thread* const left = thread_.release();
    } else {
      thread_->join();
    }
  }

  bool ready() override { return isForked() || is_done_; }
  void wait() override {
    if (!isForked()) is_done_.wait(false);
  }
  Result<Fits> result() override {
    if (Status own = engine_->checkProcess(); !own) return std::move(own).error();
    is_done_.wait(false);
    return std::move(*fits_);
  }

 private:
  bool isForked() const { return engine_->home.isForked(); }

  std::shared_ptr<Engine::State> engine_;
  // Not a std::promise, which cannot be dropped where there is no memory.
  std::optional<Result<Fits>> fits_;
  std::atomic<bool> is_done_ = false;
  std::unique_ptr<std::thread> thread_;
};

}  // namespace

Result<Fits> Engine::fit(const Program& program, const Dataset& data, std::span<const double> starts,
                         const FitOptions& options) const {
  return fitProgram(*state_, program, data, starts, options, state_->deadline());
}

Result<Pending<Fits>> Engine::submitFit(const Program& program, const Dataset& data, std::span<const double> starts,
                                        const FitOptions& options) const {
  return guarded([&]() -> Result<Pending<Fits>> {
    if (Status own = state_->checkProcess(); !own) return std::move(own).error();
    return Pending<Fits>(std::make_unique<PendingFits>(state_, program, data, starts, options));
  });
}

}  // namespace srjit
