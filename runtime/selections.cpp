// Engine::rows(), sample() and withWeights().
#include <utility>

#include "runtime/engine.h"
#include "runtime/engine_tasks.h"
#include "runtime/evaluation/selection.h"

namespace srjit {
namespace {

/// What `make` makes of data that are checked.
template <class Make>
Result<Dataset> derivedOf(const Engine::State& engine, const Dataset& data, const Make& make) {
  return engine.guardedCall([&]() -> Result<Dataset> {
    if (Status valid = checkOrigin(data.state(), engine.options); !valid) return std::move(valid).error();
    Result<std::shared_ptr<const Dataset::State>> state = make();
    if (!state) return std::move(state).error();
    return Dataset(std::move(*state));
  });
}

using MadeState = Result<std::shared_ptr<const Dataset::State>>;

Error withoutTarget() { return {Errc::kInvalid, "weights without a target", {}}; }

}  // namespace

Result<Dataset> Engine::rows(const Dataset& data, std::size_t first, std::size_t count) const {
  return derivedOf(*state_, data, [&]() -> MadeState {
    if (count == 0) return Error{Errc::kInvalid, "data without rows", {}};
    if (first > data.rows() || count > data.rows() - first) {
      return Error{
          Errc::kInvalid, fmt::format("{} rows from index {} on, of data with {} rows", count, first, data.rows()), {}};
    }
    return state_->executor->select(data, {.runs = {{first, count}}});
  });
}

Result<Dataset> Engine::sample(const Dataset& data, std::size_t groups, std::uint64_t seed) const {
  return derivedOf(*state_, data, [&]() -> MadeState {
    if (groups == 0 || groups > data.rowGroups()) {
      return Error{Errc::kInvalid,
                   fmt::format("{} groups of rows of data with {}, expected at least 1 and at most all", groups,
                               data.rowGroups()),
                   {}};
    }
    return state_->executor->select(data, {.runs = sampleGroups(data.rows(), groups, seed)});
  });
}

Result<Dataset> Engine::withWeights(const Dataset& data, const ColumnView& weights) const {
  return derivedOf(*state_, data, [&]() -> MadeState {
    if (!data.state().has_target) return withoutTarget();
    return state_->executor->select(data, {.runs = {{0, data.rows()}}, .weights = weights});
  });
}

Result<Dataset> Engine::withWeights(const Dataset& data, const DeviceMatrix& weights, std::uint64_t stream) const {
  return derivedOf(*state_, data, [&]() -> MadeState {
    if (!data.state().has_target) return withoutTarget();
    Result<HostColumn> copy = state_->executor->fetch("the weights", weights, data.rows(), stream);
    if (!copy) return std::move(copy).error();
    return state_->executor->select(data, {.runs = {{0, data.rows()}}, .weights = copy->view()});
  });
}

}  // namespace srjit
