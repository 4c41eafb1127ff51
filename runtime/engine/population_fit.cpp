#include "runtime/engine/population_fit.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <tbb/blocked_range.h>
#include <tbb/enumerable_thread_specific.h>
#include <tbb/parallel_for.h>

#include "ir/ops.h"
#include "passes/gradient/linear_parameters.h"
#include "runtime/evaluation/loss_value.h"
#include "runtime/platform/aligned_buffer.h"
#include "runtime/platform/clock.h"
#include "runtime/platform/guarded.h"

namespace srjit {
namespace {

/// Fetches the lines of these bytes into the cache of this core.
void prefetch(std::span<const std::byte> bytes) noexcept {
  const std::byte* const begin = bytes.data();
  const std::size_t before = reinterpret_cast<std::uintptr_t>(begin) % kCacheLine;
  for (const std::byte* line = begin - before; line < begin + bytes.size(); line += kCacheLine)
    __builtin_prefetch(line);
}

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

bool isScaled(const LossOptions& loss) { return !loss.custom && infoOf(loss.kind).isScaled(); }

/// What a pass sums: normal equations, or those of a reweighted step.
Derivation stepSums(const Dataset::State& data, const LossOptions& loss) {
  const bool is_of_squares = !loss.custom && infoOf(loss.kind).term == LossTerm::kSquared;
  if (!is_of_squares && !isScaled(loss)) {
    Derivation steps = derivedSums(Quantity::kReweighted, data, loss);
    steps.loss.constants.least_difference = leastDifference(data);
    return steps;
  }
  Derivation equations = derivedSums(Quantity::kNormalEquations, data, loss);
  equations.loss = {.term = infoOf(loss.kind).term,
                    .constants = {.scale = data.scale, .weight_scale = data.weight_scale}};
  return equations;
}

// What a sum of terms that are no squares of small differences cannot show is no progress.
FitOptions fitOptions(const FitOptions& options, const Derivation& derivation, Precision precision) {
  FitOptions own = options;
  if (derivation.quantity != Quantity::kReweighted) return own;
  own.loss_tolerance = std::max(own.loss_tolerance, 2 * lastPlace(precision));
  return own;
}

/// Where rows are left out, sums are means.
fit::LevenbergMarquardt::Rows rowsOf(const Dataset::State& data, const Derivation& derivation) {
  fit::LevenbergMarquardt::Rows rows{.count = static_cast<double>(data.rows), .are_of_squares = false};
  if (derivation.quantity != Quantity::kNormalEquations) return rows;
  const double mean_square = data.target_variance + data.target_mean * data.target_mean;
  rows.are_of_squares = true;
  const double weights = derivation.skips_invalid ? 1 : data.weight_sum * data.weight_scale;
  rows.target_length = std::sqrt(mean_square * weights);
  return rows;
}

/// The expressions p_k + p_(k+1) f for those f of `source`, which have k parameters.
ProgramSource scaledSource(const ProgramSource& source) {
  ProgramSource made = source.emptyLike();
  made.setExtended(
      source, source.expressions.size(), [](std::size_t e) { return e; },
      [](std::uint32_t k) {
        return std::vector{parameterCode(k + 1), codeOf(Op::kMul), parameterCode(k), codeOf(Op::kAdd)};
      },
      "the fit of a scaled loss has two more");
  return made;
}

/// The expressions of `source` with p * unit in place of the parameters `which` of each.
ProgramSource inUnits(const ProgramSource& source, double unit, const std::vector<std::vector<std::uint32_t>>& which) {
  ProgramSource made = source.emptyLike();
  made.setEach(source.expressions.size(), [&](Population::Block& block, std::size_t e) {
    std::vector<Token> tokens;
    for (const Token& token : source.expressions[e]) {
      tokens.push_back(token);
      const bool is_parameter = token.kind == Token::Kind::kParameter;
      if (!is_parameter || !std::ranges::binary_search(which[e], token.index)) continue;
      tokens.push_back(Token::constant(unit));
      tokens.push_back(Token::operation(Op::kMul));
    }
    block.add(Expression::create(std::move(tokens)).value());
    return okStatus();
  });
  made.invalid = source.invalid;
  return made;
}

}  // namespace

PopulationFit::PopulationFit(Engine::State& engine, Task base, std::span<const double> starts,
                             const FitOptions& options)
    : engine_(engine),
      base_(std::move(base)),
      program_(base_.program.state()),
      data_(base_.data.state()),
      derivation_(stepSums(data_, options.loss)),
      options_(fitOptions(options, derivation_, data_.precision)),
      methods_(data_.precision, options_, rowsOf(data_, derivation_)),
      failures_(mergeFailures(program_.failures, failuresForWantOfColumns(*program_.source, data_))) {
  engine_.executor->execute([&] {
    source_ = isScaled(options_.loss) ? std::make_shared<const ProgramSource>(scaledSource(*program_.source))
                                      : program_.source;
    failures_ = mergeFailures(std::move(failures_), source_->invalid);
    const double scale = derivation_.loss.constants.scale;
    if (scale != 1) {
      tbb::enumerable_thread_specific<LinearParameters> finders;
      in_units_.resize(source_->expressions.size());
      tbb::parallel_for(std::size_t{0}, in_units_.size(), [&](std::size_t e) {
        const std::span<const std::uint32_t> linear = finders.local().find(source_->expressions[e]);
        in_units_[e].assign(linear.begin(), linear.end());
      });
      source_ = std::make_shared<const ProgramSource>(inUnits(*source_, 1 / scale, in_units_));
    }
    makeEntries(starts);
  });
}

// Visiting the arrays of a large population takes as long as a pass.
PopulationFit::~PopulationFit() {
  engine_.executor->execute([&] {
    tbb::parallel_for(std::size_t{0}, entries_.size(), [&](std::size_t i) {
      if (entries_[i] != nullptr) std::destroy_at(entries_[i]);
    });
  });
}

Result<Fits> PopulationFit::run() {
  for (bool is_first = true; !active_.empty(); is_first = false) {
    if (options_.stop.stop_requested()) {
      for (FitEntry* const entry : active_) entry->fit.cancel();
      break;
    }
    const Status passed = guarded([&]() -> Status {
      Result<Sums> sums = pass();
      if (!sums) return std::move(sums).error();
      engine_.executor->execute([&] { take(*sums); });
      return okStatus();
    });
    if (passed) continue;
    if (is_first) return passed.error();
    const auto error = std::make_shared<const Error>(passed.error());
    for (FitEntry* const entry : active_) {
      if (!entry->fit.done()) entry->error = error;
    }
    break;
  }
  refine();
  return fits();
}

Result<Sums> PopulationFit::pass() {
  base_.deadline.check();
  makeProgram();
  const Stopwatch watch;
  Result<Sums> sums = runSums(engine_, {.program = *derived_,
                                        .data = base_.data,
                                        .parameters = parameters_,
                                        .loss = kPlainSums,
                                        .deadline = base_.deadline});
  remake_rule_.evaluated(active_.size(), watch.seconds());
  return sums;
}

// Expressions without a value have no fit.
void PopulationFit::makeEntries(std::span<const double> starts) {
  const ProgramSource& given = *program_.source;
  const std::size_t count = given.expressions.size(), all = given.parameterOffset(count);
  const std::size_t start_count = all == 0 ? 1 : starts.size() / all;
  std::vector<bool> fails(count);
  for (const Failure& failure : failures_) fails[failure.expression] = true;
  std::size_t sums = 0;
  for (std::size_t e = 0; e < count; ++e) {
    if (!fails[e]) sums += derivation_.roots(source_->expressions[e].parameterCount());
  }
  if (Status few = engine_.checkCallNodes(sums, start_count); !few) throw ErrorException(std::move(few).error());
  entries_.resize(count * start_count);
  refinable_.resize(entries_.size());
  const bool has_scale = isScaled(options_.loss);
  struct Finder {
    LinearParameters linear;
    std::vector<double> start;
    std::vector<ParameterBounds> bounds;
  };
  tbb::enumerable_thread_specific<Finder> finders;
  tbb::parallel_for(std::size_t{0}, count, [&](std::size_t e) {
    if (fails[e]) return;
    std::span<const std::uint32_t> linear;
    // Other losses are no squares of the residuals that linear parameters minimise.
    Finder& finder = finders.local();
    std::pmr::monotonic_buffer_resource& memory = memory_.local();
    if (derivation_.quantity == Quantity::kNormalEquations) linear = finder.linear.find(source_->expressions[e]);
    std::span<const ParameterBounds> bounds = options_.bounds;
    if (options_.has_bounds_of_each) bounds = bounds.subspan(program_.source->parameterOffset(e));
    bounds = bounds.first(std::min(bounds.size(), givenParameters(e)));
    finder.bounds.assign(bounds.begin(), bounds.end());
    for (std::uint32_t p = 0; p < finder.bounds.size(); ++p) {
      finder.bounds[p].lower /= unitOf(e, p);
      finder.bounds[p].upper /= unitOf(e, p);
    }
    for (std::size_t s = 0; s < start_count; ++s) {
      startOf(e, starts.subspan(s * all, all), finder.start);
      entries_[e * start_count + s] = std::pmr::polymorphic_allocator<>(&memory).new_object<FitEntry>(
          FitEntry{.fit = fit::ParameterFit(finder.start, linear, has_scale, finder.bounds, &memory),
                   .error = nullptr,
                   .expression = e,
                   .start = s,
                   .weights = derivation_.skips_invalid ? 0 : weightSum(),
                   .valid = derivation_.skips_invalid ? 0 : data_.rows});
      if (!in_units_.empty()) entries_[e * start_count + s]->fit.allowRestart();
    }
  });
  for (FitEntry* const entry : entries_) {
    if (entry != nullptr) active_.push_back(entry);
  }
}

// Offset 0 and factor 1 of a scaled expression.
void PopulationFit::startOf(std::size_t expression, std::span<const double> start, std::vector<double>& all) const {
  const auto own = start.subspan(program_.source->parameterOffset(expression), givenParameters(expression));
  all.assign(own.begin(), own.end());
  for (const double value : {0.0, 1.0}) {
    if (all.size() < source_->expressions[expression].parameterCount()) all.push_back(value);
  }
  for (std::uint32_t p = 0; p < all.size(); ++p) all[p] /= unitOf(expression, p);
}

/// What the fitted parameter is multiplied by. A power of two, so that its start comes back as it was.
double PopulationFit::unitOf(std::size_t expression, std::uint32_t parameter) const {
  if (in_units_.empty() || !std::ranges::binary_search(in_units_[expression], parameter)) return 1;
  return 1 / derivation_.loss.constants.scale;
}

std::size_t PopulationFit::givenParameters(std::size_t expression) const {
  return program_.source->parameterOffset(expression + 1) - program_.source->parameterOffset(expression);
}

void PopulationFit::makeProgram() {
  if (derived_ && !remake_rule_.isDue(active_.size())) return;
  const bool has_one_start = entries_.size() == source_->expressions.size();
  const bool is_whole = has_one_start && active_.size() == entries_.size();
  double seconds = 0;
  const auto make = [&](const ProgramSource& source) {
    const Stopwatch watch;
    // Evaluations of a fit of average length, which decide about the tier.
    constexpr double kUsualPasses = 15;
    const CompileOptions compile{.expected_evaluations = std::min<double>(options_.iterations, kUsualPasses),
                                 .expected_rows = data_.rows};
    Program made = makeVariant(engine_, program_, source.derive(derivation_), compile, base_.deadline);
    seconds = watch.seconds();
    return made;
  };
  derived_ = is_whole ? program_.variants.get(derivation_, base_.deadline, [&] { return make(*source_); })
                      : make(sourceOfActive());
  remake_rule_.made(active_.size(), seconds);
  in_program_ = active_;
  parameters_.resize(derived_->parameterOffset(active_.size()));
  engine_.executor->execute([&] {
    const ProgramSource& source = *derived_->state().source;
    tbb::parallel_for(std::size_t{0}, active_.size(), [&](std::size_t i) {
      FitEntry& entry = *active_[i];
      entry.first_output = source.outputOffset(i);
      entry.outputs = source.outputOffset(i + 1) - entry.first_output;
      entry.first_parameter = source.parameterOffset(i);
      nextParameters(entry);
    });
  });
}

ProgramSource PopulationFit::sourceOfActive() const {
  ProgramSource source = source_->emptyLike();
  engine_.executor->execute(
      [&] { source.setSelected(*source_, active_.size(), [&](std::size_t i) { return active_[i]->expression; }); });
  return source;
}

void PopulationFit::nextParameters(const FitEntry& entry) {
  std::ranges::copy(entry.fit.trial(), parameters_.begin() + static_cast<std::ptrdiff_t>(entry.first_parameter));
}

void PopulationFit::fail(const Failure& failure) {
  FitEntry& entry = *in_program_[failure.expression];
  if (entry.error == nullptr && !entry.fit.done()) entry.error = std::make_shared<const Error>(failure.error);
}

// Fits are all over the memory: while one goes on, others are fetched.
void PopulationFit::take(Sums& sums) {
  constexpr std::size_t kEntriesAhead = 8, kFitsAhead = 4;
  for (const Failure& failure : sums.failures) fail(failure);
  const auto sumsFor = [&](const FitEntry& entry) { return sums.values.subspan(entry.first_output, entry.outputs); };
  goes_on_.resize(active_.size());
  tbb::parallel_for(tbb::blocked_range<std::size_t>(0, active_.size()), [&](const auto& range) {
    fit::LevenbergMarquardt& method = methods_.local();
    for (std::size_t i = range.begin(); i < range.end(); ++i) {
      if (i + kEntriesAhead < range.end()) prefetch(std::as_bytes(std::span(active_[i + kEntriesAhead], 1)));
      if (i + kFitsAhead < range.end()) {
        const FitEntry& next = *active_[i + kFitsAhead];
        for (const std::span<const std::byte> memory : next.fit.memory()) prefetch(memory);
        prefetch(std::as_bytes(sumsFor(next)));
      }
      FitEntry& entry = *active_[i];
      const auto take = [&](std::span<const double> own) {
        const double before = entry.fit.loss();
        method.take(entry.fit, own);
        return entry.fit.loss() < before;
      };
      if (entry.error == nullptr) takeSums(entry, sumsFor(entry), take);
      goes_on_[i] = entry.error == nullptr && !entry.fit.done();
      if (goes_on_[i] != 0) {
        nextParameters(entry);
      } else {
        refinable_[entry.expression * startCount() + entry.start] = isRefinable(entry) ? 1 : 0;
      }
    }
  });
  dropEnded();
}

// Without a look at the fits, nor branches, which cannot be predicted.
void PopulationFit::dropEnded() {
  std::size_t left = 0;
  for (std::size_t i = 0; i < active_.size(); ++i) {
    active_[left] = active_[i];
    left += goes_on_[i];
  }
  active_.resize(left);
}

LossSums PopulationFit::takeMeans(const FitEntry& entry, std::span<double> outputs) const {
  const LossSums rows = readSums(outputs, derivation_, data_);
  // Fewer rows than parameters can be met by chance.
  const bool is_out = options_.loss.nan == NanPolicy::kReject
                          ? rows.valid < rows.rows
                          : !(rows.weights > 0) || rows.valid < entry.fit.parameters().size();
  for (double& sum : outputs.first(outputs.size() - derivation_.counts())) {
    sum = is_out ? std::numeric_limits<double>::infinity() : sum / rows.weights;
  }
  return rows;
}

Fits PopulationFit::fits() {
  const std::size_t count = program_.source->expressions.size(), all = program_.source->parameterOffset(count);
  Fits fits{.parameters = std::vector<double>(all, kUnknown), .standard_errors = std::vector<double>(all, kUnknown)};
  fits.losses.values.resize(count, kUnknown);
  fits.losses.valid_rows.resize(count);
  fits.iterations.resize(count);
  fits.statuses.resize(count, FitStatus::kFailed);
  fits.starts.resize(count);
  std::vector<const FitEntry*> winners(count);
  engine_.executor->execute([&] {
    tbb::parallel_for(std::size_t{0}, count, [&](std::size_t e) {
      const FitEntry* const best = winnerOf(e);
      if (best != nullptr) write(methods_.local(), *best, fits);
      winners[e] = best;
    });
  });
  std::vector<Failure> failures;
  for (std::size_t e = 0; e < count; ++e) {
    if (winners[e] == nullptr || !winners[e]->error) continue;
    failures.push_back({e, *winners[e]->error});
    fits.statuses[e] = FitStatus::kFailed;
  }
  fits.losses.failures = mergeFailures(failures_, std::move(failures));
  const bool is_sum_of_means =
      derivation_.skips_invalid && !options_.loss.custom && options_.loss.kind == LossKind::kSse;
  if (isScaled(options_.loss) || !in_units_.empty() || is_sum_of_means) takeLosses(fits);
  return fits;
}

// Engine::loss() has these bits: its sums of scaled losses round less, it evaluates expressions without units, and its
// sums are no means. Where they cannot be had, since the time of the call is over, those of the fit stay.
void PopulationFit::takeLosses(Fits& fits) const {
  const Result<Losses> losses = guarded([&] {
    Task task = base_;
    task.parameters = fits.parameters;
    return runLoss(engine_, std::move(task), options_.loss);
  });
  if (!losses) return;
  std::vector<bool> fails(fits.statuses.size());
  for (const std::vector<Failure>* failures : {&losses->failures, &std::as_const(fits.losses.failures)}) {
    for (const Failure& failure : *failures) fails[failure.expression] = true;
  }
  for (std::size_t e = 0; e < fails.size(); ++e) {
    if (fails[e]) continue;
    fits.losses.values[e] = losses->values[e];
    fits.losses.valid_rows[e] = losses->valid_rows[e];
  }
}

FitEntry* PopulationFit::winnerOf(std::size_t expression) const {
  FitEntry* best = nullptr;
  const std::size_t starts = startCount();
  for (FitEntry* const entry : std::span(entries_).subspan(expression * starts, starts)) {
    if (entry == nullptr) break;
    if (best == nullptr || entry->fit.loss() < best->fit.loss()) best = entry;
  }
  return best;
}

std::size_t PopulationFit::startCount() const {
  const std::size_t count = program_.source->expressions.size();
  return count == 0 ? 0 : entries_.size() / count;
}

// Where rows are left out, a fit has means.
double PopulationFit::sumOf(const FitEntry& entry) const {
  return entry.fit.loss() * (derivation_.skips_invalid ? entry.weights : 1);
}

void PopulationFit::write(fit::LevenbergMarquardt& method, const FitEntry& entry, Fits& fits) const {
  const std::size_t e = entry.expression, first = program_.source->parameterOffset(e), own = givenParameters(e);
  for (std::uint32_t p = 0; p < own; ++p) fits.parameters[first + p] = entry.fit.parameters()[p] * unitOf(e, p);
  if (derivation_.quantity == Quantity::kNormalEquations) {
    std::vector<double> errors = entry.inverse_diagonal;
    if (errors.empty()) {
      errors.resize(entry.fit.size());
      method.standardErrors(entry.fit, entry.valid, errors);
    } else {
      const double freedom = static_cast<double>(entry.valid) - static_cast<double>(entry.rank);
      const double squares = freedom > 0 ? sumOf(entry) : kUnknown;
      for (double& error : errors) error = std::sqrt(error * squares / freedom);
    }
    for (std::uint32_t p = 0; p < own; ++p) fits.standard_errors[first + p] = errors[p] * unitOf(e, p);
  }
  fits.iterations[e] = entry.fit.passes();
  const FitStatus status = entry.fit.status();
  const bool has_ended = status != FitStatus::kNotFinite && status != FitStatus::kCancelled;
  fits.statuses[e] = own == 0 && has_ended ? FitStatus::kNoParameters : status;
  fits.starts[e] = entry.start;
  if (entry.fit.passes() == 0) return;
  const LossConstants& constants = derivation_.loss.constants;
  const LossSums sums{.terms = sumOf(entry),
                      .weights = entry.weights,
                      .rows = data_.rows,
                      .valid = entry.valid,
                      .scale = constants.scale,
                      .weight_scale = constants.weight_scale};
  fits.losses.values[e] = lossOfSum(sums, data_.target_variance, options_.loss);
  fits.losses.valid_rows[e] = validRows(sums, options_.loss.nan);
}

}  // namespace srjit
