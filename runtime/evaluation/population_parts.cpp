#include "runtime/evaluation/population_parts.h"

#include <algorithm>
#include <atomic>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <tbb/parallel_pipeline.h>

#include "runtime/platform/guarded.h"

namespace srjit {
namespace {

struct PartInFlight {
  std::size_t first;  ///< of its expressions
  Pending<Losses> losses;
};

class PartsPending final : public Pending<Losses>::State {
 public:
  PartsPending(std::vector<PartInFlight> parts, std::size_t expressions)
      : parts_(std::move(parts)), expressions_(expressions) {}

  bool ready() override {
    return std::ranges::all_of(parts_, [](const PartInFlight& part) { return part.losses.ready(); });
  }
  void wait() override {
    for (const PartInFlight& part : parts_) part.losses.wait();
  }
  Result<Losses> result() override {
    return guarded([&]() -> Result<Losses> {
      Losses all;
      // Written for the first time here, while the device computes.
      all.values.resize(expressions_);
      all.valid_rows.resize(expressions_);
      for (PartInFlight& part : parts_) {
        Result<Losses> some = std::move(part.losses).result();
        if (!some) return some;
        std::ranges::copy(some->values, all.values.begin() + static_cast<std::ptrdiff_t>(part.first));
        std::ranges::copy(some->valid_rows, all.valid_rows.begin() + static_cast<std::ptrdiff_t>(part.first));
        for (Failure& failure : some->failures) failure.expression += part.first;
        std::ranges::move(some->failures, std::back_inserter(all.failures));
      }
      return all;
    });
  }

 private:
  std::vector<PartInFlight> parts_;
  const std::size_t expressions_;
};

/// A part between its steps.
struct PartDraft {
  std::size_t first_expression, first_parameter;
  std::optional<Program> program;
  std::optional<Result<Pending<Losses>>> losses;
};

class PartsSubmission {
 public:
  PartsSubmission(std::span<const PopulationView> parts, std::span<const double> parameters, const PartSteps& steps)
      : parts_(parts), parameters_(parameters), steps_(steps) {
    drafts_.reserve(parts.size());
  }

  Result<Pending<Losses>> run() {
    // Nothing may throw in the pipeline: that would cancel what another step does in parallel, and leave it half done.
    constexpr auto kInOrder = tbb::filter_mode::serial_in_order;
    tbb::parallel_pipeline(
        2, tbb::make_filter<void, PartDraft*>(kInOrder, [&](tbb::flow_control& flow) -> PartDraft* {
             PartDraft* const draft = prepareNext();
             if (draft == nullptr) flow.stop();
             return draft;
           }) & tbb::make_filter<PartDraft*, void>(kInOrder, [&](PartDraft* draft) { submit(*draft); }));
    if (failure_) return std::move(*failure_);
    for (PartDraft& draft : drafts_) {
      if (draft.losses && !*draft.losses) return std::move(*draft.losses).error();
    }
    if (parameters_.size() != next_parameter_) return wrongParameterCount(parameters_.size(), next_parameter_);
    if (drafts_.size() == 1) return std::move(*drafts_.front().losses);
    std::vector<PartInFlight> flights;
    for (PartDraft& draft : drafts_) flights.push_back({draft.first_expression, std::move(*draft.losses).value()});
    return Pending<Losses>(std::make_unique<PartsPending>(std::move(flights), next_expression_));
  }

 private:
  /// Null after the last one.
  PartDraft* prepareNext() {
    if (drafts_.size() == parts_.size() || stops_) return nullptr;
    Result<Program> program =
        guarded([&]() -> Result<Program> { return steps_.prepare(parts_[drafts_.size()], drafts_.empty()); });
    if (!program) {
      failure_ = std::move(program).error();
      return nullptr;
    }
    PartDraft& draft = drafts_.emplace_back(PartDraft{next_expression_, next_parameter_, std::move(*program), {}});
    next_expression_ += draft.program->size();
    next_parameter_ += draft.program->parameterOffset(draft.program->size());
    return &draft;
  }

  // Where parameters are missing, the others are prepared all the same: their number is in the message.
  void submit(PartDraft& draft) {
    const std::size_t count = draft.program->parameterOffset(draft.program->size());
    if (!stops_ && draft.first_parameter + count <= parameters_.size()) {
      draft.losses =
          guarded([&] { return steps_.submit(*draft.program, parameters_.subspan(draft.first_parameter, count)); });
      if (!*draft.losses) stops_ = true;
    }
    draft.program.reset();
  }

  const std::span<const PopulationView> parts_;
  const std::span<const double> parameters_;
  const PartSteps& steps_;
  std::vector<PartDraft> drafts_;  ///< its memory does not move
  std::size_t next_expression_ = 0, next_parameter_ = 0;
  std::optional<Error> failure_;     ///< of preparing
  std::atomic<bool> stops_ = false;  ///< since a part could not be submitted
};

}  // namespace

std::vector<PopulationView> divide(const PopulationView& population, std::size_t count) {
  std::vector<PopulationView> parts;
  const std::span<const std::int64_t> offsets = population.offsets;
  std::size_t first = 0;
  for (std::size_t p = 1; p < count && population.size() > 0; ++p) {
    const auto end = static_cast<std::int64_t>(population.codes.size() * p / count);
    const auto last = static_cast<std::size_t>(std::ranges::lower_bound(offsets, end) - offsets.begin());
    if (last <= first || last >= population.size()) continue;
    parts.push_back(population);
    parts.back().offsets = offsets.subspan(first, last - first + 1);
    first = last;
  }
  parts.push_back(population);
  if (first > 0) parts.back().offsets = offsets.subspan(first);
  return parts;
}

Result<Pending<Losses>> submitParts(std::span<const PopulationView> parts, std::span<const double> parameters,
                                    const PartSteps& steps) {
  return PartsSubmission(parts, parameters, steps).run();
}

Error wrongParameterCount(std::size_t given, std::size_t expected) {
  return {Errc::kInvalid, fmt::format("{} parameters, but the program has {}", given, expected), {}};
}

}  // namespace srjit
