#include "runtime/host/batches.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <tbb/parallel_for.h>

#include "ir/numbers/rounding.h"
#include "passes/tree.h"

namespace srjit {

namespace {

/// Whether programs come straight from expressions as they are written. Machine code is made of graphs, and so are
/// derivatives and what passes of the caller give.
bool takesTrees(const CompileOrder& order) {
  const ProgramSource& source = order.source;
  return order.tier == Tier::kInterpret && !source.simplify && !source.derivation && !source.pipeline;
}

/// So many parts that all threads have some, each of at least kLeastOfPart pieces of work.
std::size_t partSize(std::size_t pieces, std::size_t least) {
  constexpr std::size_t kParts = 256;
  return std::max(least, ceilDivide(pieces, kParts));
}
constexpr std::size_t kLeastTreesOfPart = 64, kLeastRangesOfPart = 1;

}  // namespace

struct HostBatches::Part {
  std::vector<std::vector<HostInstruction>> instructions = {};
  std::vector<HostBatch> batches = {};
  ParameterTable parameters = {};
  std::vector<Failure> failures = {};
  std::size_t nodes = 0;
  double seconds_passes = 0, seconds_codegen = 0;

  void addGraph(const CompileOrder& order, const Range& range, HostJit& jit) {
    const Stopwatch watch;
    const ProgramSource& source = order.source;
    const std::uint32_t first = range.expressions.front(), last = range.expressions.back() + 1;
    HostBatch batch{.expressions = {first, last},
                    .outputs = {static_cast<std::uint32_t>(source.outputOffset(first)),
                                static_cast<std::uint32_t>(source.outputOffset(last))},
                    .program = {},
                    .parameters = parameters.size()};
    const Result<Dag> dag = graphOf(order.of(range.expressions, range.is_compiled ? Tier::kCompile : Tier::kInterpret));
    const double passes = watch.seconds();
    order.deadline.check();
    Status made = dag ? okStatus() : dag.error();
    if (made && range.is_compiled) {
      Result<HostCode> code = jit.compile(*dag);
      made = code ? okStatus() : std::move(code).error();
      if (made) batch.code = std::move(*code);
    } else if (made) {
      Result<HostProgram> program = encodeForHost(*dag);
      made = program ? okStatus() : std::move(program).error();
      if (made) batch.program = {keep(std::move(program->instructions)), program->slots};
    }
    if (!made) {
      for (const std::uint32_t e : range.expressions) failures.push_back({e, made.error()});
    } else if (!batch.outputs.empty()) {  // derivatives by no parameters have none
      for (const ParameterSource& parameter : dag->parameters()) {
        parameters.add(parameter, source.parameterOffset(parameter.isLiteral() ? 0 : first + parameter.expression));
      }
      batches.push_back(std::move(batch));
    }
    if (dag) nodes += dag->size();
    seconds_passes += passes;
    seconds_codegen += watch.seconds() - passes;
  }

  void addTrees(const CompileOrder& order, std::uint32_t first, std::uint32_t last) {
    const Stopwatch watch;
    const ProgramSource& source = order.source;
    order.deadline.check();
    TreeReader reader(source.precision, source.math);
    HostTreeEncoder encoder;
    std::vector<NodeId> leaves;
    std::vector<HostInstruction> all;
    for (std::uint32_t e = first; e < last; ++e) {
      const Tree tree = reader.read(source.expressions[e]);
      const std::size_t before = all.size();
      const std::uint32_t slots = encoder.encode(tree, all, leaves);
      batches.push_back({.expressions = {e, e + 1},
                         .outputs = {e, e + 1},
                         .program = {std::span(all).subspan(before), slots},
                         .parameters = parameters.size()});
      parameters.add(tree, leaves, source.parameterOffset(e));
      nodes += tree.nodes.size();
    }
    // Where the instructions are is known now.
    const std::span<const HostInstruction> kept = keep(std::move(all));
    std::size_t before = 0;
    for (HostBatch& batch : batches) {
      batch.program.instructions = kept.subspan(before, batch.program.instructions.size());
      before += batch.program.instructions.size();
    }
    seconds_codegen += watch.seconds();
  }

 private:
  std::span<const HostInstruction> keep(std::vector<HostInstruction> made) {
    return instructions.emplace_back(std::move(made));
  }
};

HostBatches::HostBatches(std::shared_ptr<HostJit> jit, const CompileOrder& order) : jit_(std::move(jit)) {
  make(order);
  link();
}

void HostBatches::make(const CompileOrder& order) {
  info_.tier = order.tier;
  info_.nodes_before = order.source.tokens;
  const bool has_trees = takesTrees(order);
  const std::vector<Range> ranges = has_trees ? std::vector<Range>() : rangesForHost(order.source, order.tier);
  const std::size_t pieces = has_trees ? order.source.expressions.size() : ranges.size();
  const std::size_t size = partSize(pieces, has_trees ? kLeastTreesOfPart : kLeastRangesOfPart);
  std::vector<Part> parts(ceilDivide(pieces, size));
  tbb::parallel_for(std::size_t{0}, parts.size(), [&](std::size_t p) {
    const std::size_t first = p * size, last = std::min(pieces, first + size);
    if (has_trees) {
      parts[p].addTrees(order, static_cast<std::uint32_t>(first), static_cast<std::uint32_t>(last));
    } else {
      for (std::size_t i = first; i < last; ++i) parts[p].addGraph(order, ranges[i], *jit_);
    }
  });
  for (Part& part : parts) take(std::move(part));
}

void HostBatches::take(Part part) {
  info_.nodes_after += part.nodes;
  info_.seconds_passes += part.seconds_passes;
  info_.seconds_codegen += part.seconds_codegen;
  failures_.insert(failures_.end(), std::make_move_iterator(part.failures.begin()),
                   std::make_move_iterator(part.failures.end()));
  for (HostBatch& batch : part.batches) {
    batch.parameters += parameters_.size();
    batches_.push_back(std::move(batch));
  }
  parameters_.append(part.parameters);
  std::ranges::move(part.instructions, std::back_inserter(instructions_));
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
