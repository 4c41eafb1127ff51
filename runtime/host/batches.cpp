#include "runtime/host/batches.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <string>
#include <utility>

#include <tbb/parallel_for.h>

#include "runtime/evaluation/code_groups.h"
#include "runtime/evaluation/optimized_dag.h"

namespace srjit {
namespace {

using Clock = std::chrono::steady_clock;
double secondsSince(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

}  // namespace

/// A batch under construction, with its contribution to the totals of all batches.
struct HostBatches::Draft {
  HostBatch batch;
  std::vector<ParameterSource> sources;
  std::size_t nodes = 0;
  double seconds_passes = 0, seconds_codegen = 0;
  std::optional<Error> error;

  void make(const Dag& dag, HostJit& jit, bool compiled) {
    nodes = dag.size();
    sources.assign(dag.parameters().begin(), dag.parameters().end());
    if (compiled) {
      auto code = jit.compile(dag);
      if (code) {
        batch.code = std::move(*code);
      } else {
        error = std::move(code).error();
      }
    } else {
      auto program = encodeForHost(dag);
      if (program) {
        batch.program = std::move(*program);
      } else {
        error = std::move(program).error();
      }
    }
  }
};

HostBatches::HostBatches(std::shared_ptr<HostJit> jit, const ProgramSource& source, Tier tier, const Deadline& deadline)
    : jit_(std::move(jit)) {
  const auto start = Clock::now();
  const std::vector<HostGroup> groups = groupForHost(source, tier);
  std::vector<Draft> drafts(groups.size());
  tbb::parallel_for(std::size_t{0}, groups.size(), [&](std::size_t i) {
    const auto began = Clock::now();
    Draft& draft = drafts[i];
    std::vector<std::uint32_t>& members = draft.batch.expressions;
    members.resize(groups[i].last - groups[i].first);
    std::iota(members.begin(), members.end(), groups[i].first);
    for (const std::uint32_t e : members) source.appendOutputs(e, draft.batch.outputs);
    const Result<Dag> dag = optimizedDag(members, {.program = source, .deadline = deadline},
                                         groups[i].compiled ? Tier::kCompile : Tier::kInterpret);
    draft.seconds_passes = secondsSince(began);
    deadline.check();
    if (dag) {
      draft.make(*dag, *jit_, groups[i].compiled);
    } else {
      draft.error = dag.error();
    }
    draft.seconds_codegen = secondsSince(began) - draft.seconds_passes;
  });
  finish(drafts, source);
  linkHandlers();
  // Divides the wall time between the two steps in proportion to their core time.
  const double busy = seconds_passes_ + seconds_codegen_;
  const double passed = secondsSince(start);
  seconds_passes_ = busy > 0 ? passed * seconds_passes_ / busy : 0;
  seconds_codegen_ = passed - seconds_passes_;
}

ProgramStatus HostBatches::status() const {
  ProgramStatus status;
  for (const HostBatch& batch : batches_) {
    (batch.code ? status.served.compiled : status.served.interpreted) += batch.expressions.size();
  }
  status.compiled = status.served.compiled;
  if (status.compiled > 0) status.tier = Tier::kCompile;
  return status;
}

void HostBatches::finish(std::vector<Draft>& drafts, const ProgramSource& source) {
  batches_.reserve(drafts.size());
  for (Draft& draft : drafts) {
    nodes_ += draft.nodes;
    seconds_passes_ += draft.seconds_passes;
    seconds_codegen_ += draft.seconds_codegen;
    if (draft.error) {
      for (const std::uint32_t expression : draft.batch.expressions) failures_.push_back({expression, *draft.error});
      continue;
    }
    if (draft.batch.outputs.empty()) continue;  // derivatives by no parameters
    takeParameters(draft, source);
    batches_.push_back(std::move(draft.batch));
  }
}

void HostBatches::takeParameters(Draft& draft, const ProgramSource& source) {
  draft.batch.parameters = parameters_.size();
  for (const ParameterSource& parameter : draft.sources) {
    const std::uint32_t member = parameter.isLiteral() ? 0 : draft.batch.expressions[parameter.expression];
    parameters_.add(parameter, source.parameterOffset(member));
  }
  for (const double constant : draft.batch.program.constants) parameters_.addLiteral(constant);
}

void HostBatches::linkHandlers() {
  handlers_.assign(handlerNumbers(), nullptr);
  std::vector<bool> used(handlers_.size());
  for (const HostBatch& batch : batches_) {
    for (const HostInstruction& instruction : batch.program.instructions) used[instruction.handler] = true;
  }
  std::vector<std::uint32_t> numbers;
  std::vector<HandlerKey> keys;
  for (std::uint32_t number = 0; number < used.size(); ++number) {
    if (!used[number]) continue;
    numbers.push_back(number);
    keys.push_back(handlerKey(number));
  }
  if (keys.empty()) return;
  const auto start = Clock::now();
  const auto made = jit_->handlers(keys);
  seconds_codegen_ += secondsSince(start);
  if (made) {
    for (std::size_t i = 0; i < numbers.size(); ++i) handlers_[numbers[i]] = (*made)[i];
    return;
  }
  std::erase_if(batches_, [&](const HostBatch& batch) {
    if (batch.code) return false;
    for (const std::uint32_t expression : batch.expressions) failures_.push_back({expression, made.error()});
    return true;
  });
  std::sort(failures_.begin(), failures_.end(),
            [](const Failure& a, const Failure& b) { return a.expression < b.expression; });
}

}  // namespace srjit
