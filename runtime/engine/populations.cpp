// Losses of a population that is evaluated once, in parts: while the device evaluates one, the next is prepared.
#include <algorithm>
#include <atomic>
#include <iterator>
#include <utility>

#include <tbb/parallel_pipeline.h>

#include "runtime/engine/tasks.h"
#include "runtime/evaluation/loss_value.h"
#include "runtime/evaluation/program_state.h"
#include "runtime/evaluation/ranges.h"

namespace srjit {
namespace {

/// A part, and the number of its first expression.
using PartInFlight = std::pair<std::size_t, Pending<Losses>>;

class PendingParts final : public Pending<Losses>::State {
 public:
  PendingParts(std::vector<PartInFlight> parts, std::size_t expressions)
      : parts_(std::move(parts)), expressions_(expressions) {}

  bool ready() override {
    return std::ranges::all_of(parts_, [](const PartInFlight& part) { return part.second.ready(); });
  }
  void wait() override {
    for (const PartInFlight& part : parts_) part.second.wait();
  }
  Result<Losses> result() override {
    return guarded([&]() -> Result<Losses> {
      Losses all;
      // Written for the first time here, while the device computes.
      all.values.resize(expressions_);
      all.valid_rows.resize(expressions_);
      for (auto& [first, losses] : parts_) {
        Result<Losses> some = std::move(losses).result();
        if (!some) return some;
        std::ranges::copy(some->values, all.values.begin() + static_cast<std::ptrdiff_t>(first));
        std::ranges::copy(some->valid_rows, all.valid_rows.begin() + static_cast<std::ptrdiff_t>(first));
        for (Failure& failure : some->failures) failure.expression += first;
        std::ranges::move(some->failures, std::back_inserter(all.failures));
      }
      return all;
    });
  }

 private:
  std::vector<PartInFlight> parts_;
  const std::size_t expressions_;
};

/// A population that the device encodes, but for expressions that are left to the host.
class PendingAsWritten final : public Pending<Losses>::State {
 public:
  PendingAsWritten(std::shared_ptr<Engine::State> engine, std::unique_ptr<Flight> flight,
                   std::vector<std::uint32_t> numbers, std::optional<Pending<Losses>> left)
      : engine_(std::move(engine)), flight_(std::move(flight)), numbers_(std::move(numbers)), left_(std::move(left)) {}
  PendingAsWritten(const PendingAsWritten&) = delete;
  PendingAsWritten& operator=(const PendingAsWritten&) = delete;
  ~PendingAsWritten() override { dropIfForked(*engine_, flight_); }

  bool ready() override {
    dropIfForked(*engine_, flight_);
    return hasEnded(flight_) && (!left_ || left_->ready());
  }
  void wait() override {
    dropIfForked(*engine_, flight_);
    awaitEnd(flight_);
    if (left_) left_->wait();
  }
  Result<Losses> result() override {
    dropIfForked(*engine_, flight_);
    return engine_->guardedCall([&]() -> Result<Losses> {
      Result<Losses> all = flight_->finish();
      if (!all || !left_) return all;
      Result<Losses> left = std::move(*left_).result();
      if (!left) return left;
      for (std::size_t i = 0; i < numbers_.size(); ++i) {
        all->values[numbers_[i]] = left->values[i];
        all->valid_rows[numbers_[i]] = left->valid_rows[i];
      }
      for (Failure& failure : left->failures) {
        failure.expression = numbers_[failure.expression];
        all->failures.push_back(std::move(failure));
      }
      std::ranges::sort(all->failures, {}, &Failure::expression);
      return all;
    });
  }

 private:
  std::shared_ptr<Engine::State> engine_;  // outlives the flight
  std::unique_ptr<Flight> flight_;
  std::vector<std::uint32_t> numbers_;
  std::optional<Pending<Losses>> left_;
};

/// Prepares and submits the parts. All of its arguments must outlive it.
class PopulationLoss {
 public:
  PopulationLoss(const std::shared_ptr<Engine::State>& engine, std::span<const double> parameters,
                 const LossOptions& loss, const Deadline& deadline)
      : engine_(engine), parameters_(parameters), loss_(loss), deadline_(deadline) {}

  /// Uses threads of the calling thread's arena. Errors: that of the first part that cannot be prepared or submitted,
  /// and a wrong number of parameters; then nothing is in flight.
  Result<Pending<Losses>> run(const PopulationView& population, const Dataset& data, CompileOptions options) {
    options.tier = options.tier.value_or(engine_->options.tier);
    options.expected_rows = data.rows();
    options.data = &data;
    if (!deadline_.canEnd() && engine_->executor->encodesAsWritten(population, data, loss_, options)) {
      if (auto pending = runAsWritten(population, data, options)) return std::move(*pending);
    }
    return runInParts(population, data, std::move(options));
  }

 private:
  /// Nothing where the device does not take the data.
  std::optional<Result<Pending<Losses>>> runAsWritten(const PopulationView& population, const Dataset& data,
                                                      const CompileOptions& options) {
    const PopulationSurvey found = survey(population, data.columns(), engine_->options.limits.max_nodes);
    if (2 * found.left.size() > population.size()) return {};
    if (Status counted = checkParameterCount(parameters_.size(), found.parameters()); !counted) {
      return Result<Pending<Losses>>(std::move(counted).error());
    }
    auto flight = engine_->executor->startAsWritten(population, found, data, parameters_, loss_);
    if (!flight) {
      if (flight.error().code == Errc::kUnsupported) return {};
      return Result<Pending<Losses>>(std::move(flight).error());
    }
    std::optional<Pending<Losses>> left;
    if (!found.left.empty()) {
      const LeftExpressions of_host = leftOf(population, found, parameters_);
      Result<Pending<Losses>> pending =
          PopulationLoss(engine_, of_host.parameters, loss_, deadline_).runInParts(of_host.view(), data, options);
      if (!pending) return pending;
      left = std::move(*pending);
    }
    return Result<Pending<Losses>>(
        Pending<Losses>(std::make_unique<PendingAsWritten>(engine_, std::move(*flight), found.left, std::move(left))));
  }

  Result<Pending<Losses>> runInParts(const PopulationView& population, const Dataset& data, CompileOptions options) {
    data_ = data;
    // A loss of graphs is derived from the tokens: it needs no code of the expressions' values.
    if (isOfGraphs(loss_, data.state())) {
      Result<Dataset> behind = engine_->executor->withTargetBehind(data);
      if (!behind) return std::move(behind).error();
      data_ = std::move(*behind);
      derivation_ = derivedSums(Quantity::kLoss, data.state(), loss_);
    }
    const std::size_t given = engine_->population_parts;
    const auto parts = divide(
        population,
        given != 0 ? given : engine_->executor->estimate(population.size(), population.codes.size(), options).parts);
    drafts_.reserve(parts.size());
    // Nothing may throw in the pipeline: that would cancel the step that runs in parallel, and leave it half done.
    constexpr auto kInOrder = tbb::filter_mode::serial_in_order;
    tbb::parallel_pipeline(2, tbb::make_filter<void, Draft*>(kInOrder, [&](tbb::flow_control& flow) -> Draft* {
                                Draft* const draft = prepareNext(parts, options);
                                if (draft == nullptr) flow.stop();
                                return draft;
                              }) & tbb::make_filter<Draft*, void>(kInOrder, [&](Draft* draft) { submit(*draft); }));
    if (failure_) return std::move(*failure_);
    for (Draft& draft : drafts_) {
      if (draft.losses && !*draft.losses) return std::move(*draft.losses).error();
    }
    if (Status counted = checkParameterCount(parameters_.size(), next_parameter_); !counted) {
      return std::move(counted).error();
    }
    if (drafts_.size() == 1) return std::move(*drafts_.front().losses);
    std::vector<PartInFlight> flights;
    for (Draft& draft : drafts_) flights.emplace_back(draft.first_expression, std::move(*draft.losses).value());
    return Pending<Losses>(std::make_unique<PendingParts>(std::move(flights), next_expression_));
  }

  /// A part between its steps.
  struct Draft {
    std::size_t first_expression, first_parameter;
    std::optional<Program> program;
    std::optional<Result<Pending<Losses>>> losses;
  };

  /// Null after the last one.
  Draft* prepareNext(std::span<const PopulationView> parts, const CompileOptions& options) {
    if (drafts_.size() == parts.size() || stops_) return nullptr;
    const auto set = [&](ProgramSource& source, bool in_arena) {
      source.is_continued = !drafts_.empty();
      source.set(parts[drafts_.size()], engine_->options.limits.max_nodes, in_arena);
    };
    Result<Program> program = guarded([&]() -> Result<Program> {
      Program made = compileWith(*engine_, options, set, deadline_, derivation_);
      deadline_.check();
      return made;
    });
    if (!program) {
      failure_ = std::move(program).error();
      return nullptr;
    }
    Draft& draft = drafts_.emplace_back(Draft{next_expression_, next_parameter_, std::move(*program), {}});
    next_expression_ += draft.program->size();
    next_parameter_ += draft.program->parameterOffset(draft.program->size());
    return &draft;
  }

  // If parameters are missing, the other parts are prepared all the same: their number is in the message.
  void submit(Draft& draft) {
    const std::size_t count = draft.program->parameterOffset(draft.program->size());
    if (!stops_ && draft.first_parameter + count <= parameters_.size()) {
      draft.losses = guarded([&] {
        return submitLoss(engine_,
                          {.program = *draft.program,
                           .data = *data_,
                           .parameters = parameters_.subspan(draft.first_parameter, count),
                           .loss = derivation_ ? kPlainSums : loss_,
                           .deadline = deadline_},
                          loss_);
      });
      if (!*draft.losses) stops_ = true;
    }
    draft.program.reset();
  }

  const std::shared_ptr<Engine::State>& engine_;
  const std::span<const double> parameters_;
  const LossOptions& loss_;
  const Deadline& deadline_;
  std::optional<Derivation> derivation_;
  std::optional<Dataset> data_;  ///< that the programs read
  std::vector<Draft> drafts_;    ///< its memory does not move
  std::size_t next_expression_ = 0, next_parameter_ = 0;
  std::optional<Error> failure_;     ///< of preparing
  std::atomic<bool> stops_ = false;  ///< since a part could not be submitted
};

}  // namespace

Result<Pending<Losses>> Engine::submitLoss(const PopulationView& population, const Dataset& data,
                                           std::span<const double> parameters, const LossOptions& loss,
                                           const CompileOptions& options) const {
  return state_->guardedCall([&]() -> Result<Pending<Losses>> {
    const Deadline deadline = state_->deadline();
    if (Status valid = checkArrays(population); !valid) return std::move(valid).error();
    if (Status few = state_->checkCallNodes(population.codes.size()); !few) return std::move(few).error();
    if (Status valid = checkOrigin(data.state(), state_->options); !valid) return std::move(valid).error();
    if (Status valid = checkLoss(loss, data.state(), state_->options.limits); !valid) return std::move(valid).error();
    PopulationLoss submission(state_, parameters, loss, deadline);
    std::optional<Result<Pending<Losses>>> pending;
    state_->executor->execute([&] { pending = submission.run(population, data, options); });
    return std::move(*pending);
  });
}

Result<DeviceLoss> Engine::deviceLoss(const Dataset& data, const DeviceLossOptions& options) const {
  return state_->guardedCall([&]() -> Result<DeviceLoss> {
    if (Status valid = checkOrigin(data.state(), state_->options); !valid) return std::move(valid).error();
    if (Status valid = checkLoss(options.loss, data.state(), state_->options.limits); !valid) {
      return std::move(valid).error();
    }
    return state_->executor->deviceLoss(data, options);
  });
}

Result<Losses> Engine::loss(const PopulationView& population, const Dataset& data, std::span<const double> parameters,
                            const LossOptions& loss, const CompileOptions& options) const {
  Result<Pending<Losses>> pending = submitLoss(population, data, parameters, loss, options);
  if (!pending) return std::move(pending).error();
  return std::move(*pending).result();
}

}  // namespace srjit
