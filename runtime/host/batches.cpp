#include "runtime/host/batches.h"

#include <algorithm>
#include <string>
#include <utility>

#include <tbb/parallel_for.h>

namespace srjit {

/// A batch under construction, with its contribution to the totals of all batches.
struct HostBatches::Draft {
  HostBatch batch;
  std::vector<ParameterSource> sources;
  std::size_t nodes = 0;
  double seconds_passes = 0, seconds_codegen = 0;
  std::optional<Error> error;

  void make(const CompileOrder& order, const Range& range, HostJit& jit) {
    const Stopwatch watch;
    batch.expressions = range.expressions;
    for (const std::uint32_t e : range.expressions) order.source.appendOutputs(e, batch.outputs);
    const Result<Dag> dag = graphOf(order.of(range.expressions, range.is_compiled ? Tier::kCompile : Tier::kInterpret));
    seconds_passes = watch.seconds();
    order.deadline.check();
    if (!dag) {
      error = dag.error();
    } else if (range.is_compiled) {
      set(*dag, jit.compile(*dag), batch.code);
    } else {
      set(*dag, encodeForHost(*dag), batch.program);
    }
    seconds_codegen = watch.seconds() - seconds_passes;
  }

 private:
  void set(const Dag& dag, auto made, auto& place) {
    nodes = dag.size();
    sources.assign(dag.parameters().begin(), dag.parameters().end());
    if (made) {
      place = std::move(*made);
    } else {
      error = std::move(made).error();
    }
  }
};

HostBatches::HostBatches(std::shared_ptr<HostJit> jit, const CompileOrder& order, const std::vector<Range>& ranges)
    : jit_(std::move(jit)) {
  make(order, ranges);
  link();
}

void HostBatches::make(const CompileOrder& order, const std::vector<Range>& ranges) {
  info_.tier = order.tier;
  info_.nodes_before = order.source.tokens;
  std::vector<Draft> drafts(ranges.size());
  tbb::parallel_for(std::size_t{0}, ranges.size(), [&](std::size_t i) { drafts[i].make(order, ranges[i], *jit_); });
  batches_.reserve(drafts.size());
  for (Draft& draft : drafts) {
    info_.nodes_after += draft.nodes;
    info_.seconds_passes += draft.seconds_passes;
    info_.seconds_codegen += draft.seconds_codegen;
    if (draft.error) {
      for (const std::uint32_t expression : draft.batch.expressions) failures_.push_back({expression, *draft.error});
    } else if (!draft.batch.outputs.empty()) {  // derivatives by no parameters have none
      take(draft, order.source);
    }
  }
}

void HostBatches::take(Draft& draft, const ProgramSource& source) {
  HostBatch& batch = draft.batch;
  batch.parameters = parameters_.size();
  for (const ParameterSource& parameter : draft.sources) {
    const std::uint32_t member = parameter.isLiteral() ? 0 : batch.expressions[parameter.expression];
    parameters_.add(parameter, source.parameterOffset(member));
  }
  for (const double constant : batch.program.constants) parameters_.addLiteral(constant);
  batches_.push_back(std::move(batch));
}

void HostBatches::link() {
  const Stopwatch linking;
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
  if (!keys.empty()) {
    if (const auto made = jit_->handlers(keys)) {
      for (std::size_t i = 0; i < numbers.size(); ++i) handlers_[numbers[i]] = (*made)[i];
    } else {
      std::erase_if(batches_, [&](const HostBatch& batch) {
        if (batch.code) return false;
        for (const std::uint32_t expression : batch.expressions) failures_.push_back({expression, made.error()});
        return true;
      });
      std::ranges::sort(failures_, {}, &Failure::expression);
    }
  }
  const double busy = info_.seconds_passes + info_.seconds_codegen + linking.seconds(), passed = watch_.seconds();
  info_.seconds_passes = busy > 0 ? passed * info_.seconds_passes / busy : 0;
  info_.seconds_codegen = passed - info_.seconds_passes;
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

AlignedBuffer HostBatches::table(std::span<const double> parameters, Precision precision) const {
  AlignedBuffer table(parameters_.bytes(precision));
  parameters_.writeLiterals(precision, table.data());
  parameters_.fill(parameters, precision, table.data());
  return table;
}

}  // namespace srjit
