#include "runtime/host/batches.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <tbb/parallel_for.h>

#include "ir/numbers/rounding.h"
#include "passes/tree.h"

namespace srjit {

namespace {

/// Slots of an expression that a processor's first cache has room for, with blocks of columns.
constexpr std::uint32_t kMostTreeSlots = 12;

constexpr std::size_t kParts = 256;            // enough for all threads
constexpr std::size_t kLeastTreesOfPart = 64;  // between two looks at the deadline

}  // namespace

struct HostBatches::Part {
  std::vector<HostInstruction> instructions = {};
  std::vector<HostBatch> batches = {};
  ParameterTable parameters = {};
  std::vector<Failure> failures = {};
  UsedHandlers used = {};
  std::size_t nodes = 0;
  double seconds_passes = 0, seconds_codegen = 0;

  void addGraph(const CompileOrder& order, const Range& range, HostJit& jit) {
    const Stopwatch watch;
    const ProgramSource& source = order.source;
    const std::uint32_t first = range.expressions.front();
    const Result<Dag> dag = graphOf(order.of(range.expressions, range.is_compiled ? Tier::kCompile : Tier::kInterpret));
    const double passes = watch.seconds();
    order.deadline.check();
    HostBatch& batch = begin(source, first, range.expressions.back() + 1);
    Status made = dag ? okStatus() : dag.error();
    Result<HostProgram> program = HostProgram{};
    if (made && range.is_compiled) {
      const Result<HostCode> code = jit.compile(*dag);
      made = code ? okStatus() : code.error();
      if (made) batch.code = *code;
    } else if (made) {
      program = encodeForHost(*dag);
      made = program ? okStatus() : program.error();
    }
    if (made) {
      for (const ParameterSource& parameter : dag->parameters()) {
        parameters.add(parameter, source.parameterOffset(parameter.isLiteral() ? 0 : first + parameter.expression));
      }
      for (const double constant : program->constants) parameters.addLiteral(constant);
      instructions.insert(instructions.end(), program->instructions.begin(), program->instructions.end());
      end(batch, program->slots);
    }
    if (dag) nodes += dag->size();
    if (!made) {
      for (const std::uint32_t e : range.expressions) failures.push_back({e, made.error()});
    }
    if (!made || batch.outputs.empty()) batches.pop_back();  // derivatives by no parameters have none
    seconds_passes += passes;
    seconds_codegen += watch.seconds() - passes;
  }

  void addTrees(const CompileOrder& order, std::uint32_t first, std::uint32_t last, HostJit& jit) {
    const Stopwatch watch;
    const double before_passes = seconds_passes, before_codegen = seconds_codegen;
    const ProgramSource& source = order.source;
    TreeReader reader(source.precision, source.math);
    HostTreeEncoder encoder;
    std::vector<NodeId> leaves;
    for (std::uint32_t e = first; e < last; ++e) {
      if ((e - first) % kLeastTreesOfPart == 0) order.deadline.check();
      const Tree tree = reader.read(source.expressions[e]);
      HostBatch& batch = begin(source, e, e + 1);
      const std::uint32_t slots = encoder.encode(tree, instructions, leaves);
      if (slots > kMostTreeSlots) {  // a graph is computed in an order that needs few
        instructions.resize(batch.first_instruction);
        batches.pop_back();
        addGraph(order, {.expressions = {e}, .length = 0, .is_compiled = false}, jit);
        continue;
      }
      parameters.add(tree, leaves, source.parameterOffset(e));
      nodes += tree.nodes.size();
      end(batch, slots);
    }
    seconds_codegen = before_codegen + watch.seconds() - (seconds_passes - before_passes);
  }

 private:
  HostBatch& begin(const ProgramSource& source, std::uint32_t first, std::uint32_t last) {
    const auto output = [&](std::uint32_t e) { return static_cast<std::uint32_t>(source.outputOffset(e)); };
    return batches.emplace_back(HostBatch{.expressions = {first, last},
                                          .outputs = {output(first), output(last)},
                                          .first_instruction = instructions.size(),
                                          .parameters = parameters.size()});
  }
  void end(HostBatch& batch, std::uint32_t slots) {
    batch.instructions = static_cast<std::uint32_t>(instructions.size() - batch.first_instruction);
    batch.slots = slots;
    for (const HostInstruction& made : std::span(instructions).subspan(batch.first_instruction)) {
      used[made.handler] = true;
    }
  }
};

HostBatches::HostBatches(std::shared_ptr<HostJit> jit, const CompileOrder& order) : jit_(std::move(jit)) {
  make(order);
}

void HostBatches::make(const CompileOrder& order) {
  info_.tier = order.tier;
  info_.nodes_before = order.source.tokens;
  const bool has_trees = order.tier == Tier::kInterpret && order.source.isOfTrees();  // machine code is of graphs
  const std::vector<Range> ranges = has_trees ? std::vector<Range>() : rangesForHost(order.source, order.tier);
  const std::size_t pieces = has_trees ? order.source.expressions.size() : ranges.size();
  const std::size_t size = std::max(has_trees ? kLeastTreesOfPart : 1, ceilDivide(pieces, kParts));
  std::vector<Part> parts(ceilDivide(pieces, size));
  tbb::parallel_for(std::size_t{0}, parts.size(), [&](std::size_t p) {
    const std::size_t first = p * size, last = std::min(pieces, first + size);
    if (has_trees) {
      parts[p].addTrees(order, static_cast<std::uint32_t>(first), static_cast<std::uint32_t>(last), *jit_);
    } else {
      for (std::size_t i = first; i < last; ++i) parts[p].addGraph(order, ranges[i], *jit_);
    }
  });
  take(std::move(parts));
}

// In the order of parts. Several threads copy large arrays.
void HostBatches::take(std::vector<Part> parts) {
  struct Place {
    std::size_t instruction = 0, batch = 0, parameter = 0, patch = 0;
  };
  std::vector<Place> places;
  Place next;
  UsedHandlers used;
  for (const Part& part : parts) {
    places.push_back(next);
    next.instruction += part.instructions.size();
    next.batch += part.batches.size();
    next.parameter += part.parameters.size();
    next.patch += part.parameters.patches();
    info_.nodes_after += part.nodes;
    info_.seconds_passes += part.seconds_passes;
    info_.seconds_codegen += part.seconds_codegen;
    failures_.insert(failures_.end(), part.failures.begin(), part.failures.end());
    used |= part.used;
  }
  instructions_.resize(next.instruction);
  batches_.resize(next.batch);
  parameters_.resize(next.parameter, next.patch);
  tbb::parallel_for(std::size_t{0}, parts.size(), [&](std::size_t p) {
    const Place& at = places[p];
    std::ranges::copy(parts[p].instructions, instructions_.begin() + static_cast<std::ptrdiff_t>(at.instruction));
    parameters_.put(at.parameter, at.patch, parts[p].parameters);
    for (std::size_t b = 0; b < parts[p].batches.size(); ++b) {
      HostBatch& batch = batches_[at.batch + b] = std::move(parts[p].batches[b]);
      batch.first_instruction += at.instruction;
      batch.parameters += at.parameter;
    }
  });
  link(used);
}

void HostBatches::link(const UsedHandlers& used) {
  const Stopwatch linking;
  handlers_.assign(handlerNumbers(), nullptr);
  std::vector<std::uint32_t> numbers;
  std::vector<HandlerKey> keys;
  for (std::uint32_t number = 0; number < handlers_.size(); ++number) {
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
