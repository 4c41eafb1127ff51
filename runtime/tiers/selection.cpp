#include "runtime/tiers/selection.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "runtime/code/interpreted/encode.h"
#include "runtime/evaluation/code_groups.h"
#include "runtime/platform/guarded.h"

namespace srjit {
namespace {

std::string costsName(const DeviceLimits& limits, const KernelStore& store) {
  return fmt::format("{} ({}) {} {}", limits.name, limits.driver_version, nameOf(store.precision()),
                     nameOf(store.math()));
}

}  // namespace

TierSelection::TierSelection(std::shared_ptr<DeviceQueue> queue, std::shared_ptr<KernelCache> cache,
                             std::shared_ptr<KernelStore> store, tbb::task_arena& arena, unsigned threads)
    : queue_(std::move(queue)),
      store_(std::move(store)),
      threads_(threads),
      arena_(arena),
      jobs_(threads),
      costs_(cache, costsName(queue_->cuda->limits(), *store_), typicalCosts(store_->precision(), store_->math()),
             [this](std::function<void()> task) { jobs_.post(std::move(task)); }),
      self_test_(queue_, store_, cache, threads),
      maker_(queue_, store_, arena, costs_, threads) {}

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

std::size_t TierSelection::bestParts(const PopulationView& population, const CompileOptions& options) const {
  const std::size_t tokens =
      population.size() == 0 ? 0 : static_cast<std::size_t>(population.offsets.back() - population.offsets.front());
  const ExpectedWork work = workOf(population.size(), tokens, options.expected_rows, options.expected_evaluations);
  const DeviceCosts now = costs();
  const CodeKind first = firstCode(*options.tier, self_test_.state(), now, work);
  const std::size_t best = srjit::bestParts(first, now, work);
  const bool is_for_device = first == CodeKind::kInterpreted && !options.pipeline && store_->frontEnd() != nullptr &&
                             isEncodedOnDevice(population.size(), tokens);
  return is_for_device ? std::min(best, mostPartsForDevice(population.size())) : best;
}

double TierSelection::secondsPerToken(const ProgramSource& source, Tier tier, const CompileOptions& options) const {
  if (source.tokens == 0) return 1;
  const ExpectedWork work = workOf(source, options.expected_rows, options.expected_evaluations);
  const DeviceCosts now = costs();
  const double seconds = secondsOf(firstCode(tier, self_test_.state(), now, work), now, work);
  return seconds / static_cast<double>(source.tokens);
}

void TierSelection::makeFirstCode(Program::State& state, const CompileOptions& options, const Deadline& deadline) {
  const ProgramSource& source = *state.source;
  const GraphSource graphs_of{source, state.subtrees.get(), deadline};
  const Tier tier = state.info.tier;
  auto program = std::make_shared<DeviceProgram>(tier, options.expected_evaluations);
  state.on_device = program;
  const auto record = [&](const std::vector<Failure>& failures, std::size_t nodes, double seconds_passes) {
    state.failures = failures;
    state.info.nodes_after = nodes;
    state.info.seconds_passes = seconds_passes;
  };
  const ExpectedWork announced = workOf(source, options.expected_rows, options.expected_evaluations);
  const CodeKind first = firstCode(tier, self_test_.state(), costs(), announced);
  if (first == CodeKind::kDirect) {
    Graphs graphs = maker_.directGraphs(graphs_of);
    record(graphs.failures, graphs.nodes, graphs.seconds);
    program->setGraphs(std::move(graphs));
  } else if (first == CodeKind::kCompiled) {
    Graphs plan = maker_.compilePlan(graphs_of, jobs_.isShutDown());
    record(plan.failures, plan.nodes, plan.seconds);
    program->setPlan(std::move(plan));
  } else {
    if (isEncodedOnDevice(source) && !source.is_continued) prepareFrontEnd();
    Code code = maker_.interpreted(graphs_of);
    record(code->failures, code->report.nodes, code->report.seconds_passes);
    state.info.seconds_codegen = code->report.seconds_codegen;
    state.info.recurring = code->report.recurring;
    state.info.encoded_on_device = code->report.on_device;
    // What the interpreter refuses is compiled under Tier::kAuto.
    if (tier == Tier::kAuto) std::erase_if(state.failures, isRefusal);
    program->setInterpreted(std::move(code));
  }
  if (state.subtrees == nullptr) return;
  state.subtrees->close();
  state.info.subtrees_read = state.subtrees->columns();
  state.info.nodes_spared = state.subtrees->sparedNodes();
}

void TierSelection::recordRunTime(DeviceProgram& program, const DeviceCode& code, std::size_t rows, double seconds) {
  const int kinds = (code.interpreter ? 1 : 0) + (code.direct ? 1 : 0) + (code.compiled ? 1 : 0);
  const double node_rows = static_cast<double>(code.report.tokens) * static_cast<double>(rows);
  if (kinds != 1 || node_rows < kLeastMeasured) return;
  const auto [kind, cost] = code.interpreter ? std::pair(CodeKind::kInterpreted, &DeviceCosts::interpret)
                            : code.direct    ? std::pair(CodeKind::kDirect, &DeviceCosts::direct)
                                             : std::pair(CodeKind::kCompiled, &DeviceCosts::compiled);
  program.recordSecondsPerRow(kind, seconds / static_cast<double>(rows));
  costs_.addRun(cost, node_rows, seconds);
}

// What encodes populations on the device is loaded, or made, in the background: no population waits for the assembler,
// which may be the driver's. Where that fails, the host encodes. Making begins with the second population: the end of
// an engine waits for the assembler, and one that encodes a single population would wait in vain.
void TierSelection::prepareFrontEnd() {
  (void)guarded([&] {
    const bool is_first = !has_had_population_for_device_.exchange(true);
    if ((is_first && !store_->hasFrontEndImage()) || asked_for_front_end_.exchange(true)) return okStatus();
    jobs_.post([store = store_, queue = queue_] {
      (void)guarded([&] {
        const CurrentContext current(*queue->cuda);
        return store->makeFrontEnd(queue->uploads);
      });
    });
    return okStatus();
  });
}

TierSelection::Code TierSelection::interpreted(const Program::State& state, const Deadline& deadline) {
  DeviceProgram& program = *state.on_device;
  if (program.interpreted() == nullptr) {
    program.setInterpreted(maker_.interpreted({*state.source, state.subtrees.get(), deadline}));
  }
  return program.interpreted();
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
  DeviceProgram& program = *query.state.on_device;
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
    facts.missing = compiled.missing;
    query.codeOf(CodeKind::kCompiled) = compiled.code;
  }
}

Result<TierSelection::Code> TierSelection::codeFor(const Program::State& state, const KernelKind& kind,
                                                   const DeviceData& data, bool is_evaluated,
                                                   const Deadline& deadline) {
  DeviceProgram& program = *state.on_device;
  const std::size_t rows = data.layout().rows;
  const Tier tier = program.tier();
  Query query{.state = state, .kind = kind, .rows = rows, .deadline = deadline, .facts = {.tier = tier}};
  TierFacts& facts = query.facts;
  facts.work = workOf(*state.source, rows, is_evaluated ? program.countEvaluation() : 0);
  facts.has_direct_graphs = program.graphs() != nullptr;
  if (tier == Tier::kAuto || tier == Tier::kDirect) {
    std::optional<Error> refusal = directRefusal(data.layout(), store_->precision());
    facts.layout_suits_direct = !refusal;
    if (tier == Tier::kAuto && self_test_.state() == SelfTestState::kFailed) refusal.reset();
    program.setDirectRefusal(std::move(refusal));
  }

  findFacts(query);
  for (;;) {
    const TierDecision decision = decideTier(facts);
    // Without memory for a job, the evaluation is served as it is.
    (void)guarded([&] {
      startInBackground(query, decision);
      return okStatus();
    });
    if (!decision.wait_for) return query.codeOf(decision.serves);
    facts.has_started = facts.has_started || decision.starts();
    if (Status made = await(query, *decision.wait_for, decision.on_failure); !made) return std::move(made).error();
  }
}

// Waits for code, and makes it unless another thread does. The facts then have the result.
Status TierSelection::await(Query& query, CodeKind code, OnFailure on_failure) {
  const Program::State& state = query.state;
  TierFacts& facts = query.facts;
  if (code == CodeKind::kInterpreted) {
    query.codeOf(code) = interpreted(state, query.deadline);
    facts.has_interpreted = true;
    facts.interpreter_refuses = state.on_device->interpreterRefuses();
    return okStatus();
  }
  const Order order{query.kind, code, query.rows};
  // An evaluation waits for direct code, so all threads write it. LLVM's code leaves one thread to evaluations.
  tbb::task_arena& arena = code == CodeKind::kDirect ? arena_ : jobs_.background();
  const auto make_code = [&](const std::atomic<bool>& cancelled) {
    return make({*state.source, state.subtrees.get(), query.deadline}, state.on_device.get(), order, cancelled);
  };
  Result<Code> made = jobs_.join(state.on_device->job(order.kind, code), arena, make_code, query.deadline);
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

void TierSelection::startInBackground(const Query& query, const TierDecision& decision) {
  using Start = TierDecision::Start;
  const Program::State& state = query.state;
  const TierFacts& facts = query.facts;
  const auto start = [&](CodeKind code, JobQueue::Look look) {
    // The program may be destroyed before the job ends.
    jobs_.start(
        state.on_device->job(query.kind, code),
        [this, source = state.source, subtrees = state.subtrees, order = Order{query.kind, code, query.rows}](
            const std::atomic<bool>& cancelled) { return make({*source, subtrees.get()}, nullptr, order, cancelled); },
        std::move(look));
  };
  if (decision.start_direct) start(CodeKind::kDirect, nullptr);
  if (decision.start_compiled == Start::kNow) start(CodeKind::kCompiled, nullptr);
  if (decision.start_compiled != Start::kIfPays) return;
  const auto pays = [costs = facts.costs, work = facts.work](const MissingKernels& missing) {
    return compilingMissingPays(costs, work, missing);
  };
  start(CodeKind::kCompiled,
        [this, source = state.source, subtrees = state.subtrees, kind = query.kind,
         pays](const std::atomic<bool>& cancelled) -> std::optional<MissingKernels> {
          const MissingKernels missing = maker_.missing({*source, subtrees.get()}, kind, pays, cancelled);
          return pays(missing) ? std::nullopt : std::optional(missing);
        });
}

// Machine code: interpreted() makes the other. `program` is null in the background, where kCompiledRefused is never
// made: it serves only an evaluation that waits.
Result<TierSelection::Code> TierSelection::make(const GraphSource& source, const DeviceProgram* program,
                                                const Order& order, const std::atomic<bool>& cancelled) {
  const CurrentContext current(*queue_->cuda);
  if (order.code == CodeKind::kDirect) {
    // Other programs need the self-test, too, so the end of this one does not cancel it.
    if (auto failure = self_test_.ensure(jobs_.isShutDown())) return std::move(*failure);
    return maker_.direct(source, program != nullptr ? program->graphs() : nullptr, order.kind, order.rows, cancelled);
  }
  if (order.code == CodeKind::kCompiledRefused) {
    return maker_.compiled(source, program->refused(), nullptr, order.kind, cancelled);
  }
  return maker_.compiled(source, CodeMaker::allOf(source.program), program != nullptr ? program->plan() : nullptr,
                         order.kind, cancelled);
}

}  // namespace srjit
