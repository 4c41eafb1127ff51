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
#include "runtime/evaluation/loss_terms.h"
#include "runtime/fit/scaled_qr.h"
#include "runtime/platform/guarded.h"

namespace srjit {
namespace {

/// How often least squares are solved at the parameters that the last solution gave.
constexpr unsigned kMostRounds = 3;
/// The numbers of a matrix that least squares are solved of, and of all that are in memory at a time.
constexpr std::size_t kMostNumbers = std::size_t{1} << 26, kMostNumbersAtOnce = std::size_t{1} << 23;
/// Sines of columns with errors of a unit of the last place are right to some of these.
constexpr double kSineError = 16;
/// With larger sines, seminormal equations keep some digits of a step.
constexpr double kLeastSine = 1e-5;
/// What terms are taken to be rounded by, in last places. Of more, large terms that cancel each other become smaller.
constexpr double kDampings[] = {0.5, 8, 128};
/// A loss is near the expected one up to this share: rounding adds no more.
constexpr double kNearLoss = 1e-3;
/// Another round is worth a pass if the last one lowered the loss by this share.
constexpr double kWorthwhile = 1e-9;
/// By how many times itself a full step may change a nonlinear parameter: LevenbergMarquardt.
constexpr double kLongestRefinement = 3;
/// Sums of equal weights in other orders differ by less.
constexpr double kSameWeights = 1e-6;

/// What least squares are solved of.
struct Matrix {
  std::vector<double> columns;  ///< of the parameters in the fit's places, then r
  std::size_t rows = 0;
};

/// The roots of Quantity::kTangent in rows where all are finite, times the square root of the weight.
template <class T>
Matrix matrixOf(const fit::ParameterFit& fit, std::span<const T> roots, std::size_t rows, bool is_weighted) {
  const std::size_t count = fit.size();
  const auto root = [&](std::size_t number, std::size_t row) { return roots[number * rows + row]; };
  std::vector<std::size_t> used;
  for (std::size_t row = 0; row < rows; ++row) {
    bool is_finite = true;
    for (std::size_t i = 0; i <= count; ++i) is_finite = is_finite && std::isfinite(root(i, row));
    if (is_finite) used.push_back(row);
  }
  Matrix matrix{std::vector<double>(used.size() * (count + 1)), used.size()};
  auto out = matrix.columns.begin();
  for (std::size_t place = 0; place <= count; ++place) {
    const std::size_t number = place == count ? 0 : 1 + fit.parameterAt(place);
    for (const std::size_t row : used) {
      const double weight = is_weighted ? std::sqrt(static_cast<double>(root(count + 1, row))) : 1;
      *out++ = weight * static_cast<double>(root(number, row));
    }
  }
  return matrix;
}

bool isWorthMore(const FitRefinement& refined) {
  return refined.entry->fit.loss() < (1 - kWorthwhile) * refined.loss_before;
}

}  // namespace

void PopulationFit::refine() {
  if (derivation_.quantity != Quantity::kNormalEquations) return;
  std::vector<FitRefinement> refined = refinements();
  // Their solver has left nothing to gain but what rounding hides.
  for (const FitRefinement& one : refined) {
    if (one.is_ill_conditioned && one.entry->fit.linear() == one.entry->fit.size()) one.entry->fit.settle();
  }
  const Status done = guarded([&]() -> Status {
    for (unsigned round = 0; round < kMostRounds && !refined.empty(); ++round) {
      if (options_.stop.stop_requested()) break;
      for (FitRefinement& one : refined) {
        one.loss_before = one.entry->fit.loss();
        one.candidates.clear();
        if (round == 0) addConstant(one);
      }
      if (Status added = addLeastSquares(refined); !added) return added;
      std::size_t most = 0;
      for (const FitRefinement& one : refined) most = std::max(most, one.candidates.size());
      for (std::size_t number = 0; number < most; ++number) {
        if (Status tried = tryCandidates(refined, number); !tried) return tried;
      }
      std::erase_if(refined, [](const FitRefinement& one) { return !one.is_ill_conditioned || !isWorthMore(one); });
    }
    return okStatus();
  });
  // These fits have ended: where the time is over, they stay as they are.
  if (done || done.error().code == Errc::kLimit) return;
  const auto error = std::make_shared<const Error>(done.error());
  for (const FitRefinement& one : refined) one.entry->error = error;
}

/// The place of a linear parameter whose column is as long as one of ones, or of minus ones; size() if none is.
std::size_t PopulationFit::offsetOf(const fit::ParameterFit& fit) const {
  const double ones = derivation_.skips_invalid ? 1 : weightSum();
  for (std::size_t i = 0; i < fit.linear(); ++i) {
    if (std::fabs(fit.squaredLength(i) - ones) <= kSameWeights * ones) return i;
  }
  return fit.size();
}

bool PopulationFit::isAboveConstant(const FitEntry& entry) const {
  return sumOf(entry) > weightSum() * data_.target_variance && entry.valid == data_.rows;
}

bool PopulationFit::isRefinable(const FitEntry& entry) const {
  const fit::ParameterFit& fit = entry.fit;
  if (entry.error != nullptr || fit.linear() == 0 || !std::isfinite(fit.loss())) return false;
  return fit.isIllConditioned() || (isAboveConstant(entry) && offsetOf(fit) < fit.size());
}

// Of each expression the fit that has the smallest loss. The fits are all over the memory: others are not looked at.
std::vector<FitRefinement> PopulationFit::refinements() const {
  std::vector<FitRefinement> refined;
  for (std::size_t i = 0; i < refinable_.size(); ++i) {
    if (refinable_[i] == 0) continue;
    FitEntry* const entry = winnerOf(i / startCount());
    if (entry != entries_[i] || entry->fit.passes() >= options_.iterations) continue;
    const bool is_small = data_.rows * (entry->fit.size() + 2) <= kMostNumbers;
    refined.push_back({entry, entry->fit.isIllConditioned() && is_small, entry->fit.loss()});
  }
  return refined;
}

void PopulationFit::addConstant(FitRefinement& refined) const {
  const fit::ParameterFit& fit = refined.entry->fit;
  const std::size_t offset = offsetOf(fit);
  if (!isAboveConstant(*refined.entry) || offset == fit.size()) return;
  FitCandidate constant{{fit.parameters().begin(), fit.parameters().end()}};
  for (std::size_t j = 0; j < fit.linear(); ++j) constant.parameters[fit.parameterAt(j)] = 0;
  // The length of a column does not tell an offset that is added from one that is subtracted.
  for (const double mean : {data_.target_mean, -data_.target_mean}) {
    constant.parameters[fit.parameterAt(offset)] = mean;
    refined.candidates.push_back(constant);
  }
}

// Matrices of a part of the fits at a time.
Status PopulationFit::addLeastSquares(std::span<FitRefinement> refined) const {
  std::vector<FitRefinement*> part;
  std::size_t numbers = 0;
  const auto solve = [&]() -> Status {
    Status solved = part.empty() ? okStatus() : addSolutions(std::exchange(part, {}));
    numbers = 0;
    return solved;
  };
  for (FitRefinement& one : refined) {
    if (!one.is_ill_conditioned) continue;
    const std::size_t own = data_.rows * (one.entry->fit.size() + 2);
    if (numbers + own > kMostNumbersAtOnce) {
      if (Status solved = solve(); !solved) return solved;
    }
    part.push_back(&one);
    numbers += own;
  }
  return solve();
}

Status PopulationFit::addSolutions(const std::vector<FitRefinement*>& part) const {
  Derivation tangent = derivation_;
  tangent.quantity = Quantity::kTangent;
  tangent.skips_invalid = false;
  ProgramSource source = source_->emptyLike();
  engine_.executor->execute(
      [&] { source.setSelected(*source_, part.size(), [&](std::size_t i) { return part[i]->entry->expression; }); });
  const CompileOptions compile{.expected_evaluations = 1, .expected_rows = data_.rows};
  const Program program = makeVariant(engine_, program_, source.derive(tangent), compile, base_.deadline);
  std::vector<double> parameters;
  for (const FitRefinement* one : part) {
    const std::span<const double> own = one->entry->fit.parameters();
    parameters.insert(parameters.end(), own.begin(), own.end());
  }
  const ProgramSource& derived = *program.state().source;
  return withZeroOf(data_.precision, [&]<class T>(T) -> Status {
    std::vector<T> values(derived.outputOffset(part.size()) * data_.rows);
    const Task task{.program = program,
                    .data = base_.data,
                    .parameters = parameters,
                    .out = reinterpret_cast<std::byte*>(values.data()),
                    .loss = {},
                    .deadline = base_.deadline};
    const Result<Losses> done = runTask(engine_, task);
    if (!done) return done.error();
    engine_.executor->execute([&] {
      tbb::parallel_for(std::size_t{0}, part.size(), [&](std::size_t i) {
        const std::size_t first = derived.outputOffset(i), count = derived.outputOffset(i + 1) - first;
        const std::span<const T> roots = std::span<const T>(values).subspan(first * data_.rows, count * data_.rows);
        Matrix matrix = matrixOf(part[i]->entry->fit, roots, data_.rows, data_.has_weights);
        addSolutions(*part[i], matrix.columns, matrix.rows);
      });
    });
    return okStatus();
  });
}

void PopulationFit::addSolutions(FitRefinement& refined, std::span<double> columns, std::size_t rows) const {
  FitEntry& entry = *refined.entry;
  const fit::ParameterFit& fit = entry.fit;
  const double last_place = lastPlace(data_.precision);
  if (rows < fit.size()) return;
  std::vector<double> gradient(fit.size());
  for (std::size_t i = 0; i < fit.size(); ++i) {
    gradient[i] = fit::exactDot(columns.subspan(i * rows, rows), columns.subspan(fit.size() * rows, rows));
  }
  fit::ScaledQr qr;
  qr.factor(columns, rows, fit.size(), kSineError * last_place);
  if (qr.leastSine() > kLeastSine) qr.setGradient(gradient);
  entry.rank = qr.rank();
  entry.inverse_diagonal.resize(fit.size());
  std::vector<double> places(fit.size()), step(fit.size());
  for (std::size_t i = 0; i < fit.size(); ++i) {
    places[i] = fit.parameters()[fit.parameterAt(i)];
    entry.inverse_diagonal[fit.parameterAt(i)] = qr.inverseDiagonal(i);
  }
  const double means = derivation_.skips_invalid ? entry.weights : 1;
  const auto add = [&](std::size_t count, double damping, bool is_more_exact) {
    std::ranges::fill(step, 0);
    qr.solve(places, damping * last_place, std::span(step).first(count));
    FitCandidate candidate{{fit.parameters().begin(), fit.parameters().end()}, is_more_exact, qr.rest(count) / means};
    bool is_too_long = false;
    for (std::size_t i = 0; i < fit.size(); ++i) {
      candidate.parameters[fit.parameterAt(i)] += step[i];
      const double size = std::fabs(places[i]);
      is_too_long = is_too_long || (i >= fit.linear() && size > 0 && std::fabs(step[i]) > kLongestRefinement * size);
    }
    if (!is_too_long) refined.candidates.push_back(std::move(candidate));
  };
  if (fit.linear() < fit.size()) add(fit.size(), kDampings[0], false);
  for (const double damping : kDampings) add(fit.linear(), damping, damping == kDampings[0]);
}

// All fits that have a candidate of this number, together.
Status PopulationFit::tryCandidates(std::span<FitRefinement> refined, std::size_t number) {
  active_.clear();
  std::vector<const FitCandidate*> tried;
  for (FitRefinement& one : refined) {
    if (number >= one.candidates.size() || one.entry->fit.passes() >= options_.iterations) continue;
    const FitCandidate& candidate = one.candidates[number];
    if (number > 0 && !candidate.is_more_exact && one.entry->fit.loss() <= (1 + kNearLoss) * candidate.expected)
      continue;
    one.entry->fit.setTrial(candidate.parameters);
    active_.push_back({.entry = one.entry});
    tried.push_back(&candidate);
  }
  if (active_.empty()) return okStatus();
  derived_.reset();
  Result<Sums> sums = pass();
  if (!sums) return std::move(sums).error();
  for (const Failure& failure : sums->failures)
    active_[failure.expression].entry->error = std::make_shared<const Error>(failure.error);
  engine_.executor->execute([&] {
    tbb::parallel_for(std::size_t{0}, active_.size(), [&](std::size_t i) {
      const Active& active = active_[i];
      if (active.entry->error != nullptr) return;
      FitEntry& entry = *active.entry;
      const std::span<double> outputs = sums->values.subspan(active.first_output, active.outputs);
      LossSums rows;
      if (derivation_.skips_invalid) rows = takeMeans(entry, outputs);
      const std::span<double> own = outputs.first(outputs.size() - derivation_.counts());
      const bool is_taken = methods_.local().tryCandidate(entry.fit, own, tried[i]->is_more_exact);
      if (!is_taken || !derivation_.skips_invalid) return;
      entry.weights = rows.weights;
      entry.valid = rows.valid;
    });
  });
  return okStatus();
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
