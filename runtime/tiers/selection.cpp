#include "runtime/tiers/selection.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "runtime/code/makers.h"
#include "runtime/evaluation/ranges.h"
#include "runtime/platform/clock.h"
#include "runtime/platform/guarded.h"
#include "runtime/platform/trace.h"

namespace srjit {

namespace {

std::string costsName(const KernelStore& store) {
  const DeviceLimits& limits = store.queue().cuda->limits();
  return fmt::format("{} ({}) {} {}", limits.name, limits.driver_version, nameOf(store.precision()),
                     nameOf(store.math()));
}

// On the calling thread's arena.
Graphs compiledGraphs(const CompileOrder& order, const std::atomic<bool>& cancelled) {
  Graphs graphs = planKernels(order);
  addGraphs(graphs, order, cancelled);
  return graphs;
}

}  // namespace

TierSelection::TierSelection(std::shared_ptr<KernelStore> store, tbb::task_arena& arena, unsigned threads)
    : store_(std::move(store)),
      queue_(store_->queue()),
      threads_(threads),
      arena_(arena),
      jobs_(threads),
      costs_(store_->cache(), costsName(*store_), typicalCosts(store_->precision(), store_->math()),
             [this](std::function<void()> task) { jobs_.post(std::move(task)); }),
      self_test_(store_, threads) {}

ExpectedWork TierSelection::workOf(std::size_t expressions, std::size_t tokens, std::size_t rows,
                                   double evaluations) const {
  return {.nodes = static_cast<double>(tokens),
          .rows = static_cast<double>(rows),
          .evaluations = evaluations,
          .kernels = ceilDivide(expressions, kExpressionsPerKernel),
          .threads = threads_};
}

ExpectedWork TierSelection::workOf(const ProgramSource& source, std::size_t rows, double evaluations) const {
  return workOf(source.expressions.size(), source.tokens * source.lengthFactor(), rows, evaluations);
}

Estimate TierSelection::estimate(std::size_t expressions, std::size_t tokens, const CompileOptions& options) const {
  const ExpectedWork work = workOf(expressions, tokens, options.expected_rows, options.expected_evaluations);
  const DeviceCosts now = costs();
  const CodeKind first = firstCode(*options.tier, self_test_.state(), now, work);
  return {secondsOf(first, now, work), bestParts(first, now, work)};
}

bool TierSelection::interprets(std::size_t expressions, std::size_t tokens, const CompileOptions& options) const {
  const ExpectedWork work = workOf(expressions, tokens, options.expected_rows, options.expected_evaluations);
  return firstCode(*options.tier, self_test_.state(), costs(), work) == CodeKind::kInterpreted;
}

bool TierSelection::hasLanes() {
  if (store_->lanesIfMade() != nullptr) return true;
  if (++asked_for_lanes_ != 2) return false;
  (void)guarded([&] {
    jobs_.post([store = store_] {
      (void)guarded([&]() -> Status {
        const CurrentContext current(*store->queue().cuda);
        if (auto made = store->lanes(); !made) return std::move(made).error();
        return okStatus();
      });
    });
    return okStatus();
  });
  return false;
}

CompileOrder TierSelection::orderOf(const ProgramSource& source, GraphFilter* filter, const Deadline& deadline,
                                    std::span<const std::uint32_t> range) const {
  return {.source = source, .range = range, .deadline = deadline, .filter = filter, .threads = threads_};
}

void TierSelection::compileOnGpu(Program::State& state, const CompileOptions& options, const Deadline& deadline,
                                 std::shared_ptr<GraphFilter> filter) {
  const ProgramSource& source = *state.source;
  const Tier tier = state.info.tier;
  const ExpectedWork announced = workOf(source, options.expected_rows, options.expected_evaluations);
  const CodeKind first = firstCode(tier, self_test_.state(), costs(), announced);
  const std::vector<std::uint32_t> all = source.all();
  const CompileOrder order = orderOf(source, filter.get(), deadline, all);
  const auto program = std::make_shared<DeviceProgram>(tier, options.expected_evaluations);
  state.code = program;
  if (first == CodeKind::kInterpreted) {
    const Code code = interpreted(order);
    program->setInterpreted(code);
    state.failures = code->failures;
    if (tier == Tier::kAuto) std::erase_if(state.failures, isRefusal);  // Those are compiled.
    state.info = code->info;
    state.info.tier = tier;
  } else {
    const Graphs& graphs = program->setGraphs(first, graphsFor(first, order, jobs_.isShutDown()));
    state.failures = graphs.failures;
    state.info.nodes_after = graphs.nodes;
    state.info.seconds_passes = graphs.seconds;
  }
  if (filter != nullptr) filter->close(state.info);
  program->setFilter(std::move(filter));
}

void TierSelection::recordRunTime(DeviceProgram& program, const DeviceCode& code, std::size_t rows, double seconds) {
  const int kinds = (code.interpreter ? 1 : 0) + (code.direct ? 1 : 0) + (code.compiled ? 1 : 0);
  const double node_rows = static_cast<double>(code.info.nodes_before) * static_cast<double>(rows);
  if (kinds != 1 || node_rows < kLeastMeasured) return;
  const auto [kind, cost] = code.interpreter ? std::pair(CodeKind::kInterpreted, &DeviceCosts::interpret)
                            : code.direct    ? std::pair(CodeKind::kDirect, &DeviceCosts::direct)
                                             : std::pair(CodeKind::kCompiled, &DeviceCosts::compiled);
  program.recordSecondsPerRow(kind, seconds / static_cast<double>(rows));
  costs_.addRun(cost, node_rows, seconds);
}

/// One call of codeFor().
struct TierSelection::Query {
  const Program::State& state;
  KernelKind kind;
  std::size_t rows;
  Deadline deadline;
  TierFacts facts;
  std::array<Code, kCodeKinds> codes = {};  ///< that are ready, by CodeKind

  Code& codeOf(CodeKind which) { return codes[static_cast<std::size_t>(which)]; }
};

// Called before the first decision, and after a wait for direct code: what other threads may have changed meanwhile.
void TierSelection::findFacts(Query& query) const {
  DeviceProgram& program = deviceProgramOf(query.state);
  TierFacts& facts = query.facts;
  if (facts.tier == Tier::kAuto) {
    facts.costs = costs();
    facts.self_test = self_test_.state();
  }
  query.codeOf(CodeKind::kInterpreted) = program.interpreted();
  facts.has_interpreted = query.codeOf(CodeKind::kInterpreted) != nullptr;
  facts.interpreter_refuses = program.interpreterRefuses();
  facts.direct_was_slower = program.directWasSlower();
  if (facts.tier == Tier::kAuto || (facts.tier == Tier::kDirect && facts.layout_suits_direct)) {
    const CodeJob::View direct = program.job(query.kind, CodeKind::kDirect)->view();
    facts.direct = direct.state;
    facts.direct_is_complete = direct.code == nullptr || std::ranges::none_of(direct.code->failures, isRefusal);
    query.codeOf(CodeKind::kDirect) = direct.code;
  }
  if (facts.tier == Tier::kAuto || facts.tier == Tier::kCompile) {
    const CodeJob::View compiled = program.job(query.kind, CodeKind::kCompiled)->view();
    facts.compiled = compiled.state;
    query.codeOf(CodeKind::kCompiled) = compiled.code;
  }
}

Result<TierSelection::Code> TierSelection::codeFor(const Program::State& state, const KernelKind& kind,
                                                   const DeviceData& data, bool is_evaluated,
                                                   const Deadline& deadline) {
  DeviceProgram& program = deviceProgramOf(state);
  const std::size_t rows = data.layout().rows;
  const Tier tier = program.tier();
  Query query{.state = state, .kind = kind, .rows = rows, .deadline = deadline, .facts = {.tier = tier}};
  TierFacts& facts = query.facts;
  facts.work = workOf(*state.source, rows, is_evaluated ? program.countEvaluation() : 0);
  facts.has_direct_graphs = program.graphs(CodeKind::kDirect) != nullptr;
  if (tier == Tier::kAuto || tier == Tier::kDirect) {
    std::optional<Error> refusal = directRefusal(data.layout(), store_->precision());
    facts.layout_suits_direct = !refusal;
    if (tier == Tier::kAuto && self_test_.state() == SelfTestState::kFailed) refusal.reset();
    program.setDirectRefusal(std::move(refusal));
  }

  findFacts(query);
  for (;;) {
    const TierDecision decision = decideTier(facts);
    if (decision.start) startInBackground(query, *decision.start);
    if (!decision.wait_for) return query.codeOf(decision.serves);
    facts.has_started = facts.has_started || decision.start;
    if (Status made = await(query, *decision.wait_for, decision.on_failure); !made) return std::move(made).error();
  }
}

// Waits for code, and makes it unless another thread does. The facts then have the result.
Status TierSelection::await(Query& query, CodeKind code, OnFailure on_failure) {
  DeviceProgram& program = deviceProgramOf(query.state);
  TierFacts& facts = query.facts;
  const ProgramSource& source = *query.state.source;
  const std::vector<std::uint32_t> range = code == CodeKind::kCompiledRefused ? program.refused() : source.all();
  const CompileOrder order = orderOf(source, program.filter().get(), query.deadline, range);
  if (code == CodeKind::kInterpreted) {
    if (program.interpreted() == nullptr) program.setInterpreted(interpreted(order));
    query.codeOf(code) = program.interpreted();
    facts.has_interpreted = true;
    facts.interpreter_refuses = program.interpreterRefuses();
    return okStatus();
  }
  // An evaluation waits for direct code, so all threads write it. LLVM's code leaves one thread to evaluations.
  tbb::task_arena& arena = code == CodeKind::kDirect ? arena_ : jobs_.background();
  const auto make_code = [&](const std::atomic<bool>& cancelled) {
    return make(code, order, program.graphs(code), query.kind, query.rows, cancelled);
  };
  Result<Code> made = jobs_.join(program.job(query.kind, code), arena, make_code, query.deadline);
  query.deadline.check();
  const bool returns = on_failure == OnFailure::kReturn || (on_failure == OnFailure::kReturnUnlessUnsupported &&
                                                            !made && made.error().code != Errc::kUnsupported);
  if (!made && returns) return std::move(made).error();
  if (code == CodeKind::kDirect) findFacts(query);
  if (!made) {
    facts.direct_was_tried = true;
    return okStatus();
  }
  query.codeOf(code) = std::move(*made);
  if (code == CodeKind::kDirect) facts.direct = CodeState::kReady;
  if (code == CodeKind::kCompiled) facts.compiled = CodeState::kReady;
  if (code == CodeKind::kCompiledRefused) facts.compiled_refused = CodeState::kReady;
  return okStatus();
}

// Without memory for a job, the evaluation is served as it is. The program may be destroyed before the job ends.
void TierSelection::startInBackground(const Query& query, CodeKind code) {
  (void)guarded([&] {
    DeviceProgram& program = deviceProgramOf(query.state);
    jobs_.start(program.job(query.kind, code),
                [this, code, source = query.state.source, filter = program.filter(), kind = query.kind,
                 rows = query.rows](const std::atomic<bool>& cancelled) {
                  const std::vector<std::uint32_t> all = source->all();
                  return make(code, orderOf(*source, filter.get(), {}, all), nullptr, kind, rows, cancelled);
                });
    return okStatus();
  });
}

TierSelection::Code TierSelection::interpreted(const CompileOrder& order) const {
  TraceSpan span(TraceKind::kCompile, kInterpreterCode, queue_.name);
  span.add("expressions", order.source.expressions.size());
  span.add("tokens", order.source.tokens);
  return arena_.execute([&] { return std::make_shared<const DeviceCode>(encodeForDevice(*store_, order)); });
}

Graphs TierSelection::graphsFor(CodeKind code, const CompileOrder& order, const std::atomic<bool>& cancelled) {
  if (code == CodeKind::kDirect) {
    TraceSpan span(TraceKind::kCompile, "graphs", queue_.name);
    span.add("expressions", order.source.expressions.size());
    return arena_.execute([&] { return directGraphs(order); });
  }
  return arena_.execute([&] { return compiledGraphs(order, cancelled); });
}

// Machine code. `graphs` are those that the program began with, if they are for such code. Other programs need the
// self-test, too, so the end of this one does not cancel it.
Result<TierSelection::Code> TierSelection::make(CodeKind code, const CompileOrder& order, const Graphs* graphs,
                                                const KernelKind& kind, std::size_t rows,
                                                const std::atomic<bool>& cancelled) {
  const CurrentContext current(*queue_.cuda);
  if (code != CodeKind::kDirect) return compiled(order, graphs, kind, cancelled);
  if (auto failure = self_test_.ensure(jobs_.isShutDown())) return std::move(*failure);
  return direct(order, graphs, kind, rows, cancelled);
}

TierSelection::Code TierSelection::compiled(const CompileOrder& order, const Graphs* graphs, const KernelKind& kind,
                                            const std::atomic<bool>& cancelled) {
  TraceSpan span(TraceKind::kCompile, kCompiledCode, queue_.name);
  span.add("expressions", order.range.size());
  std::optional<Graphs> own;
  if (graphs == nullptr) graphs = &own.emplace(compiledGraphs(order, cancelled));
  auto made = std::make_shared<const DeviceCode>(compileForDevice(*store_, order, *graphs, kind, cancelled));
  costs_.addMaking(&DeviceCosts::compile, static_cast<double>(made->made_tokens), made->made_seconds);
  return made;
}

TierSelection::Code TierSelection::direct(const CompileOrder& order, const Graphs* graphs, const KernelKind& kind,
                                          std::size_t rows, const std::atomic<bool>& cancelled) {
  TraceSpan span(TraceKind::kCompile, kDirectCode, queue_.name);
  const std::size_t expressions = order.source.expressions.size(), tokens = order.source.tokens;
  span.add("expressions", expressions);
  span.add("tokens", tokens);
  const Stopwatch watch;
  std::optional<Graphs> own;
  if (graphs == nullptr) graphs = &own.emplace(directGraphs(order));
  const DirectOptions shape = directShape(expressions, rows, queue_.cuda->limits().multiprocessors);
  auto made = std::make_shared<const DeviceCode>(directForDevice(*store_, order, *graphs, kind, shape, cancelled));
  const double seconds = own ? watch.seconds() : graphs->seconds + watch.seconds();
  if (made->direct) costs_.addMaking(&DeviceCosts::write, static_cast<double>(tokens), seconds * threads_);
  return made;
}

}  // namespace srjit
