// Engine::fit() and submitFit(), and what PopulationFit tries after its fits have ended.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <tbb/enumerable_thread_specific.h>
#include <tbb/parallel_for.h>

#include "runtime/engine.h"
#include "runtime/engine/population_fit.h"
#include "runtime/engine/tasks.h"
#include "runtime/evaluation/loss_value.h"
#include "runtime/fit/refinement.h"
#include "runtime/platform/guarded.h"

namespace srjit {

/// Tries other parameters for the fits of a PopulationFit that have ended. Borrows them.
class FitRefiner {
 public:
  explicit FitRefiner(PopulationFit& fits) : fits_(fits), data_(fits.data_) { collect(); }

  Status run() {
    for (unsigned round = 0; round < kMostRounds && !refined_.empty(); ++round) {
      if (fits_.options_.stop.stop_requested()) break;
      for (Refined& one : refined_) {
        one.refinement.begin();
        if (round > 0 || !fits_.isAboveConstant(*one.entry)) continue;
        for (const double mean : {data_.target_mean, -data_.target_mean}) {
          one.refinement.addConstant(fits_.squaredOnes(), mean);
        }
      }
      if (Status added = addLeastSquares(); !added) return added;
      std::size_t most = 0;
      for (const Refined& one : refined_) most = std::max(most, one.refinement.size());
      for (std::size_t number = 0; number < most; ++number) {
        if (Status tried = tryCandidates(number); !tried) return tried;
      }
      std::erase_if(refined_,
                    [](const Refined& one) { return !one.is_ill_conditioned || !one.refinement.isWorthMore(); });
    }
    return okStatus();
  }
  /// The fits that were refined in the last round.
  void fail(const Error& why) {
    const auto error = std::make_shared<const Error>(why);
    for (const Refined& one : refined_) one.entry->error = error;
  }

 private:
  struct Refined {
    FitEntry* entry;
    bool is_ill_conditioned;
    fit::Refinement refinement;
  };

  /// How often least squares are solved at the parameters that the last solution gave.
  static constexpr unsigned kMostRounds = 3;
  /// The numbers of a matrix that least squares are solved of, and of all that are in memory at a time.
  static constexpr std::size_t kMostNumbers = std::size_t{1} << 26, kMostNumbersAtOnce = std::size_t{1} << 23;

  // Of each expression the fit that has the smallest loss. The fits are all over the memory: others are not looked at.
  void collect() {
    for (std::size_t i = 0; i < fits_.refinable_.size(); ++i) {
      if (fits_.refinable_[i] == 0) continue;
      FitEntry* const entry = fits_.winnerOf(i / fits_.startCount());
      if (entry != fits_.entries_[i] || entry->fit.passes() >= fits_.options_.iterations) continue;
      const bool is_small = numbersOf(*entry) <= kMostNumbers;
      refined_.push_back({entry, entry->fit.isIllConditioned() && is_small, fit::Refinement(entry->fit)});
    }
    // Their solver has left nothing to gain but what rounding hides.
    for (const Refined& one : refined_) {
      if (one.is_ill_conditioned && one.entry->fit.linear() == one.entry->fit.size()) one.entry->fit.settle();
    }
  }
  std::size_t numbersOf(const FitEntry& entry) const { return data_.rows * (entry.fit.size() + 2); }

  // Matrices of a part of the fits at a time.
  Status addLeastSquares() {
    std::vector<Refined*> part;
    std::size_t numbers = 0;
    for (Refined& one : refined_) {
      if (!one.is_ill_conditioned) continue;
      if (numbers + numbersOf(*one.entry) > kMostNumbersAtOnce) {
        if (Status solved = addSolutions(part); !solved) return solved;
        part.clear();
        numbers = 0;
      }
      part.push_back(&one);
      numbers += numbersOf(*one.entry);
    }
    return addSolutions(part);
  }

  Status addSolutions(const std::vector<Refined*>& part) {
    if (part.empty()) return okStatus();
    Engine::State& engine = fits_.engine_;
    Derivation tangent = fits_.derivation_;
    tangent.quantity = Quantity::kTangent;
    tangent.skips_invalid = false;
    ProgramSource source = fits_.source_->emptyLike();
    engine.executor->execute([&] {
      source.setSelected(*fits_.source_, part.size(), [&](std::size_t i) { return part[i]->entry->expression; });
    });
    const CompileOptions compile{.expected_evaluations = 1, .expected_rows = data_.rows};
    const Program program = makeVariant(engine, fits_.program_, source.derive(tangent), compile, fits_.base_.deadline);
    std::vector<double> parameters;
    for (const Refined* one : part) {
      const std::span<const double> own = one->entry->fit.parameters();
      parameters.insert(parameters.end(), own.begin(), own.end());
    }
    const ProgramSource& derived = *program.state().source;
    return withZeroOf(data_.precision, [&]<class T>(T) -> Status {
      std::vector<T> values(derived.outputOffset(part.size()) * data_.rows);
      const Task task{.program = program,
                      .data = fits_.base_.data,
                      .parameters = parameters,
                      .out = reinterpret_cast<std::byte*>(values.data()),
                      .loss = {},
                      .deadline = fits_.base_.deadline};
      const Result<Losses> done = runTask(engine, task);
      if (!done) return done.error();
      engine.executor->execute([&] {
        tbb::parallel_for(std::size_t{0}, part.size(), [&](std::size_t i) {
          const std::size_t first = derived.outputOffset(i), count = derived.outputOffset(i + 1) - first;
          FitEntry& entry = *part[i]->entry;
          fit::Refinement& refinement = part[i]->refinement;
          refinement.addLeastSquares(std::span<const T>(values).subspan(first * data_.rows, count * data_.rows),
                                     data_.rows, data_.has_weights, fits_.derivation_.skips_invalid ? entry.weights : 1,
                                     lastPlace(data_.precision));
          entry.rank = refinement.rank();
          entry.inverse_diagonal = refinement.inverseDiagonal();
        });
      });
      return okStatus();
    });
  }

  // All fits that have a candidate of this number, together.
  Status tryCandidates(std::size_t number) {
    std::vector<FitEntry*>& active = fits_.active_;
    active.clear();
    std::vector<const fit::Refinement::Candidate*> tried;
    for (const Refined& one : refined_) {
      const fit::Refinement::Candidate* const candidate = one.refinement.candidate(number);
      if (candidate == nullptr || one.entry->fit.passes() >= fits_.options_.iterations) continue;
      one.entry->fit.setTrial(candidate->parameters);
      active.push_back(one.entry);
      tried.push_back(candidate);
    }
    if (active.empty()) return okStatus();
    fits_.derived_.reset();
    Result<Sums> sums = fits_.pass();
    if (!sums) return std::move(sums).error();
    for (const Failure& failure : sums->failures) {
      active[failure.expression]->error = std::make_shared<const Error>(failure.error);
    }
    fits_.engine_.executor->execute([&] {
      tbb::parallel_for(std::size_t{0}, active.size(), [&](std::size_t i) {
        FitEntry& entry = *active[i];
        if (entry.error != nullptr) return;
        fits_.takeSums(entry, sums->values.subspan(entry.first_output, entry.outputs),
                       [&](std::span<const double> own) {
                         return fits_.methods_.local().tryCandidate(entry.fit, own, tried[i]->is_more_exact);
                       });
      });
    });
    return okStatus();
  }

  PopulationFit& fits_;
  const Dataset::State& data_;
  std::vector<Refined> refined_;
};

void PopulationFit::refine() {
  if (derivation_.quantity != Quantity::kNormalEquations) return;
  FitRefiner refiner(*this);
  const Status done = guarded([&] { return refiner.run(); });
  // These fits have ended: where the time is over, they stay as they are.
  if (!done && done.error().code != Errc::kLimit) refiner.fail(done.error());
}

bool PopulationFit::isAboveConstant(const FitEntry& entry) const {
  return sumOf(entry) > weightSum() * data_.target_variance && entry.valid == data_.rows;
}

bool PopulationFit::isRefinable(const FitEntry& entry) const {
  const fit::ParameterFit& fit = entry.fit;
  if (entry.error != nullptr || fit.linear() == 0 || !std::isfinite(fit.loss())) return false;
  return fit.isIllConditioned() ||
         (isAboveConstant(entry) && fit::Refinement::offsetOf(fit, squaredOnes()) < fit.size());
}

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
  for (std::size_t p = 0; p < options.bounds.size(); ++p) {
    const auto [lower, upper] = options.bounds[p];
    if (lower <= upper && lower < HUGE_VAL && upper > -HUGE_VAL) continue;
    return Error{
        Errc::kInvalid, fmt::format("bounds {} and {} of p{}: no number is between them", lower, upper, p), {}};
  }
  if (options.has_bounds_of_each && options.bounds.size() != all) {
    return Error{Errc::kInvalid, fmt::format("{} bounds for {} parameters", options.bounds.size(), all), {}};
  }
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
  return loss.term != LossTerm::kPrediction && loss.kind != LossKind::kCorrelation;
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
  return engine.guardedCall([&]() -> Result<Fits> {
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
  return state_->guardedCall([&]() -> Result<Pending<Fits>> {
    return Pending<Fits>(std::make_unique<PendingFits>(state_, program, data, starts, options));
  });
}

}  // namespace srjit
