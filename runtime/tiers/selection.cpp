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
      self_test_(queue_, store_, cache, threads) {}

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

void TierSelection::compileOnGpu(Program::State& state, const CompileOptions& options, const Deadline& deadline,
                                 std::shared_ptr<GraphFilter> filter) {
  const GraphSource source{*state.source, filter.get(), deadline};
  const Tier tier = state.info.tier;
  const auto program = std::make_shared<DeviceProgram>(tier, options.expected_evaluations);
  state.code = program;
  const auto record = [&](const std::vector<Failure>& failures, std::size_t nodes, double seconds_passes) {
    state.failures = failures;
    state.info.nodes_after = nodes;
    state.info.seconds_passes = seconds_passes;
  };
  const ExpectedWork announced = workOf(*state.source, options.expected_rows, options.expected_evaluations);
  const CodeKind first = firstCode(tier, self_test_.state(), costs(), announced);
  if (first != CodeKind::kInterpreted) {
    std::vector<std::uint32_t> all;
    if (first == CodeKind::kCompiled) all = allOf(*state.source);
    Graphs graphs = arena_.execute([&] { return graphsFor(first, source, all, jobs_.isShutDown()); });
    record(graphs.failures, graphs.nodes, graphs.seconds);
    program->setGraphs(first, std::move(graphs));
  } else {
    prepareFrontEnd(*state.source);
    const Code code = interpreted(source);
    record(code->failures, code->report.nodes, code->report.seconds_passes);
    if (tier == Tier::kAuto) std::erase_if(state.failures, isRefusal);  // Those are compiled.
    state.info.seconds_codegen = code->report.seconds_codegen;
    state.info.recurring = code->report.recurring;
    state.info.encoded_on_device = code->report.on_device;
    program->setInterpreted(code);
  }
  if (filter == nullptr) return;
  filter->close(state.info);
  program->setFilter(std::move(filter));
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
  const GraphSource source{*query.state.source, program.filter().get(), query.deadline};
  if (code == CodeKind::kInterpreted) {
    if (program.interpreted() == nullptr) program.setInterpreted(interpreted(source));
    query.codeOf(code) = program.interpreted();
    facts.has_interpreted = true;
    facts.interpreter_refuses = program.interpreterRefuses();
    return okStatus();
  }
  // An evaluation waits for direct code, so all threads write it. LLVM's code leaves one thread to evaluations.
  tbb::task_arena& arena = code == CodeKind::kDirect ? arena_ : jobs_.background();
  const auto make_code = [&](const std::atomic<bool>& cancelled) {
    return make(code, source, &program, query.kind, query.rows, cancelled);
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
                  return make(code, {*source, filter.get()}, nullptr, kind, rows, cancelled);
                });
    return okStatus();
  });
}

}  // namespace srjit
