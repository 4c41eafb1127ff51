// Engines: how they are made, and their data sets.
#include "runtime/engine.h"

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <utility>

#include <tbb/task_arena.h>

#include "ir/token_errors.h"
#include "runtime/engine/parts.h"
#include "runtime/engine/tasks.h"
#include "runtime/evaluation/dataset_state.h"
#include "runtime/platform/trace.h"
#include "runtime/pool/make_executor.h"

namespace srjit {

// In the child of a fork() there are no threads that the executor's end could wait for.
Engine::State::~State() {
  if (home.isForked()) {
    // Leaves the executor without an end, as it is.
    alignas(std::shared_ptr<Executor>) std::byte left[sizeof executor];
    std::construct_at(reinterpret_cast<std::shared_ptr<Executor>*>(left), std::move(executor));
  }
}

Status Engine::State::checkProcess() const {
  if (!home.isForked()) return okStatus();
  return Error{Errc::kMachine, "an engine that was made before this process was forked", {}};
}

Status Engine::State::checkCallNodes(std::size_t found, std::size_t times) const {
  return srjit::checkCallNodes(found, times, options.limits.max_call_nodes);
}

namespace {

using MadeState = Result<std::shared_ptr<const Dataset::State>>;

Status checkLimits(const Limits& limits) {
  if (limits.max_seconds >= 0) return okStatus();
  return Error{Errc::kInvalid, fmt::format("max_seconds is {}, expected 0 or more", limits.max_seconds), {}};
}

Status checkNames(const ColumnNames& names, std::size_t columns) {
  if (names.empty() || names.size() == columns) return okStatus();
  return Error{Errc::kInvalid,
               fmt::format("{} name{} for {} column{}: expected none, or one for each", names.size(),
                           names.size() == 1 ? "" : "s", columns, columns == 1 ? "" : "s"),
               {}};
}

/// A data set of the state that `make` gives.
template <class Make>
Result<Dataset> datasetOf(const Engine::State& engine, const Make& make) {
  return engine.guardedCall([&]() -> Result<Dataset> {
    MadeState state = make();
    if (!state) return std::move(state).error();
    return Dataset(std::move(*state));
  });
}

/// The rows and weights that `choose` gives, of data that are this engine's.
template <class Choose>
Result<Dataset> selectOf(const Engine::State& engine, const Dataset& data, const Choose& choose) {
  return datasetOf(engine, [&]() -> MadeState {
    if (Status valid = checkOrigin(data.state(), engine.options); !valid) return std::move(valid).error();
    Result<Selection> selection = choose();
    if (!selection) return std::move(selection).error();
    return engine.executor->select(data, *selection);
  });
}

Error withoutTarget() { return {Errc::kInvalid, "weights without a target", {}}; }

}  // namespace

Engine::Engine(std::shared_ptr<State> state) : state_(std::move(state)) {}

EngineParts EngineParts::ofMachine() {
  const char* const listings = std::getenv("SRJIT_LISTINGS");
  return {.driver = [] { return loadDriver(); }, .images = llvmImageMaker(listings == nullptr ? "" : listings)};
}

Result<Engine> Engine::create(const EngineOptions& options) { return createEngine(options, EngineParts::ofMachine()); }

Result<Engine> createEngine(const EngineOptions& options, const EngineParts& parts) {
  return guarded([&]() -> Result<Engine> {
    if (Status valid = checkLimits(options.limits); !valid) return std::move(valid).error();
    if (options.threads > kMaxThreads) {
      return Error{Errc::kInvalid, fmt::format("{} threads, expected at most {}", options.threads, kMaxThreads), {}};
    }
    auto state = std::make_shared<Engine::State>();
    state->options = options;
    // oneTBB prints a warning when an arena wants more threads than there are.
    const auto available = static_cast<unsigned>(tbb::this_task_arena::max_concurrency());
    state->options.threads = options.threads != 0 ? std::min(options.threads, available) : available;
    if (const Status traced = traceByEnvironment(); !traced) state->notices.push_back(traced.error().message);
    auto executor = makeExecutor(state->options, parts.driver, parts.images, state->notices);
    if (!executor) return std::move(executor).error();
    state->executor = std::move(*executor);
    state->population_parts = parts.population_parts;
    return Engine(std::move(state));
  });
}

Result<Engine> Engine::withLimits(const Limits& limits) const {
  return guarded([&]() -> Result<Engine> {
    if (Status valid = checkLimits(limits); !valid) return std::move(valid).error();
    return Engine(std::make_shared<State>(*state_, limits));
  });
}

const EngineOptions& Engine::options() const noexcept { return state_->options; }
std::vector<std::string> Engine::notices() const {
  std::vector<std::string> all = state_->notices;
  if (state_->home.isForked()) return all;
  for (std::string& notice : state_->executor->notices()) all.push_back(std::move(notice));
  return all;
}
CacheStats Engine::cacheStats() const {
  return state_->home.isForked() ? CacheStats() : state_->executor->cacheStats();
}

Result<Dataset> Engine::upload(const DataView& data) const {
  return datasetOf(*state_, [&]() -> MadeState {
    if (Status named = checkNames(data.names, data.columns.size()); !named) return std::move(named).error();
    return state_->executor->upload(data);
  });
}

Result<Dataset> Engine::adopt(const DeviceDataView& data) const {
  return datasetOf(*state_, [&]() -> MadeState {
    if (Status named = checkNames(data.names, data.columns.columns); !named) return std::move(named).error();
    return state_->executor->adopt(data);
  });
}

Result<Dataset> Engine::rows(const Dataset& data, std::size_t first, std::size_t count) const {
  return selectOf(*state_, data, [&]() -> Result<Selection> {
    if (count == 0) return Error{Errc::kInvalid, "data without rows", {}};
    if (first > data.rows() || count > data.rows() - first) {
      return Error{
          Errc::kInvalid, fmt::format("{} rows from index {} on, of data with {} rows", count, first, data.rows()), {}};
    }
    return Selection{.runs = {{first, count}}};
  });
}

Result<Dataset> Engine::sample(const Dataset& data, std::size_t groups, std::uint64_t seed) const {
  return selectOf(*state_, data, [&]() -> Result<Selection> {
    if (groups == 0 || groups > data.rowGroups()) {
      return Error{Errc::kInvalid,
                   fmt::format("{} groups of rows of data with {}, expected at least 1 and at most all", groups,
                               data.rowGroups()),
                   {}};
    }
    return Selection{.runs = sampleGroups(data.rows(), groups, seed)};
  });
}

Result<Dataset> Engine::withWeights(const Dataset& data, const ColumnView& weights) const {
  return selectOf(*state_, data, [&]() -> Result<Selection> {
    if (!data.state().has_target) return withoutTarget();
    return Selection{.runs = {{0, data.rows()}}, .weights = weights};
  });
}

Result<Dataset> Engine::withWeights(const Dataset& data, const DeviceMatrix& weights, std::uint64_t stream) const {
  AlignedBuffer copy;
  return selectOf(*state_, data, [&]() -> Result<Selection> {
    if (!data.state().has_target) return withoutTarget();
    Result<AlignedBuffer> fetched = state_->executor->fetch("the weights", weights, data.rows(), stream);
    if (!fetched) return std::move(fetched).error();
    copy = std::move(*fetched);
    return Selection{.runs = {{0, data.rows()}}, .weights = columnOf(copy, data.rows(), data.state().precision)};
  });
}

}  // namespace srjit
