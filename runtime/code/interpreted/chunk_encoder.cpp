#include "runtime/code/interpreted/chunk_encoder.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include <tbb/parallel_for.h>

#include "compiler/interpreter/encoder.h"
#include "compiler/interpreter/handler_table.h"
#include "ir/ops.h"
#include "runtime/evaluation/optimized_dag.h"

namespace srjit {
namespace {

// Expressions that one task encodes: few enough that all threads have some.
constexpr std::size_t kMostOfChunk = EncodedChunk::kMost, kLeastOfChunk = 64;

// The program that `encode` appends, or its failure.
template <class Encode>
void addProgram(std::uint32_t expression, EncodedChunk& chunk, const Encode& encode) {
  const std::size_t before = chunk.code.tokens.size();
  const std::uint32_t most_slots = std::exchange(chunk.code.slots, 0);
  if (Status encoded = encode()) {
    chunk.lengths.push_back(static_cast<std::uint32_t>(chunk.code.tokens.size() - before));
    chunk.slots.push_back(chunk.code.slots);
  } else {
    chunk.failures.push_back({expression, std::move(encoded).error()});
  }
  chunk.code.slots = std::max(most_slots, chunk.code.slots);
}

bool namesColumn(const Handler& handler) {
  using enum Handler::Kind;
  if (handler.kind == kApply) return handler.operands.find('v') != OperandForm::npos;
  return handler.kind == kPushColumn || handler.kind == kArgumentColumn || handler.kind == kKeepProductSum;
}

}  // namespace

ChunkEncoder::ChunkEncoder(const CodeRequest& request, const std::vector<SectionDraft>& sections,
                           const InterpreterLimits& limits)
    : request_(request),
      source_(request.source),
      sections_(sections),
      limits_(limits),
      table_(request.store.table({OpFamily::kAll, 8})),
      scratch_(request.store.encodeScratch().take()),
      needs_graphs_(source_.pipeline || request.filter != nullptr),
      finds_(!needs_graphs_ && !source_.derivation && source_.variables <= kFirstSlot &&
             request.chosen.size() == source_.expressions.size() &&
             source_.tokens >= kLeastTokensToFind * source_.expressions.size()) {
  if (scratch_ == nullptr) scratch_ = std::make_unique<EncodeScratch>(source_.precision, source_.math, table_);
  if (finds_ && !source_.is_continued) {
    std::swap(scratch_->chunks, scratch_->before);
    scratch_->generation.set(scratch_->before.used());
  }
  if (!finds_ || !source_.is_continued) all().clear();
  first_ = all().used().size();
}

void ChunkEncoder::finish() {
  scratch_->trim(ScratchPool<EncodeScratch>::kMostBytes);
  request_.store.encodeScratch().giveBack(std::move(scratch_), finds_);
}

void ChunkEncoder::encode(std::span<const std::uint32_t> chosen, std::size_t from) {
  const std::size_t size =
      std::clamp(chosen.size() / (std::size_t{4} * request_.threads) + 1, kLeastOfChunk, kMostOfChunk);
  struct Range {
    std::size_t first, last, section;
  };
  std::vector<Range> ranges;
  for (std::size_t s = 0; s < sections_.size(); ++s) {
    for (std::size_t first = std::max(sections_[s].first, from); first < sections_[s].last; first += size) {
      ranges.push_back({first, std::min(first + size, sections_[s].last), s});
    }
  }
  const std::span<EncodedChunk> added = all().add(ranges.size());
  tbb::parallel_for(std::size_t{0}, added.size(), [&](std::size_t c) {
    request_.deadline.check();
    const auto& [first, last, section] = ranges[c];
    added[c].begin(first, last, section);
    const auto members = chosen.subspan(first, last - first);
    EncodeWorker& worker = scratch_->workers.local();
    needs_graphs_ ? encodeGraphs(members, added[c], worker.encoder) : encodeExpressions(members, added[c], worker);
  });
}

EncodeOptions ChunkEncoder::optionsOf(const EncodedChunk& chunk) const {
  EncodeOptions options;
  options.columns = sections_[chunk.section].numbers;
  options.staged_columns = kFirstSlot;
  options.max_slots = static_cast<std::uint32_t>(limits_.slots);
  options.joins_sums = source_.derivation && source_.derivation->isSummed();
  return options;
}

void ChunkEncoder::takeNode(const Node& node, EncodedChunk& chunk) const {
  if (node.isOperator()) return chunk.takeOperator(node.op);
  if (node.kind != Token::Kind::kVariable) return;
  if (const auto number = sections_[chunk.section].numberOf(node.index)) chunk.takeVariable(*number);
}

// The standard passes, one expression at a time.
void ChunkEncoder::encodeExpressions(std::span<const std::uint32_t> members, EncodedChunk& chunk,
                                     EncodeWorker& worker) const {
  for (const std::uint32_t expression : members) {
    const ExpressionView tokens = source_.expressions[expression];
    chunk.tokens += tokens.size();
    addProgram(expression, chunk, [&] {
      return finds_ ? findOrEncode(tokens, expression, worker, chunk)
                    : encodeExpression(tokens, expression, worker, chunk);
    });
  }
}

// The program of the generation before, or a new one, and its record for the next generation.
Status ChunkEncoder::findOrEncode(const ExpressionView& tokens, std::uint32_t expression, EncodeWorker& worker,
                                  EncodedChunk& chunk) const {
  const EncodedGeneration& generation = scratch_->generation;
  const std::uint32_t hash = contentHash(tokens);
  const auto found = generation.isEmpty() ? EncodedGeneration::Found() : generation.find(tokens, hash);
  chunk.beginProgram(tokens, hash, source_.parameterOffset(expression));
  const std::size_t nodes = chunk.nodes;
  Status encoded = okStatus();
  if (found.chunk != nullptr) {
    copyProgram(*found.chunk, found.program, expression, chunk);
  } else {
    encoded = encodeExpression(tokens, expression, worker, chunk);
  }
  EncodedProgram& program = chunk.programs.back();
  program.slots = chunk.code.slots;
  program.nodes = static_cast<std::uint32_t>(chunk.nodes - nodes);
  if (!encoded) chunk.programs.pop_back();
  return encoded;
}

Status ChunkEncoder::encodeExpression(const ExpressionView& tokens, std::uint32_t expression, EncodeWorker& worker,
                                      EncodedChunk& chunk) const {
  const ExpressionGraph graph = worker.optimizer.run(tokens, 0, source_.derivation);
  chunk.nodes += graph.members.size();
  for (const NodeId id : graph.members) takeNode(graph.dag.node(id), chunk);
  EncodeOptions options = optionsOf(chunk);
  options.first_parameter = static_cast<std::uint32_t>(chunk.parameters.size());
  worker.outputs.clear();
  source_.appendOutputs(expression, worker.outputs);
  const EncodeFault fault = worker.encoder.encode(graph, worker.outputs, options, chunk.code);
  if (!fault.isNone()) return statusOf(fault, table_, options);
  for (const NodeId id : chunk.code.parameters) {
    const Node& node = graph.dag.node(id);
    if (node.kind == Token::Kind::kConstant) {
      chunk.parameters.addLiteral(node.value);
    } else {
      chunk.parameters.add(graph.dag.parameters()[node.index], source_.parameterOffset(expression));
    }
  }
  return okStatus();
}

// The program of an equal expression of the generation before.
void ChunkEncoder::copyProgram(const EncodedChunk& from, std::size_t number, std::uint32_t expression,
                               EncodedChunk& chunk) const {
  const EncodedProgram& known = from.programs[number];
  const bool is_last = number + 1 == from.programs.size();
  const std::size_t tokens_end = is_last ? from.code.tokens.size() : from.programs[number + 1].token;
  const std::size_t parameters_end = is_last ? from.parameters.size() : from.programs[number + 1].parameter;
  const auto moved = static_cast<std::uint32_t>(chunk.parameters.size() - known.parameter);
  for (std::size_t t = known.token; t < tokens_end; ++t) {
    DeviceToken token = from.code.tokens[t];
    if (token.code >> DeviceToken::kArgumentShift == DeviceToken::kParameter) token.argument += moved;
    takeToken(token, chunk);
    chunk.code.tokens.push_back(token);
  }
  chunk.code.tokens.back().argument = expression;  // its end
  chunk.parameters.append(from.parameters, known.parameter, parameters_end,
                          source_.parameterOffset(expression) - known.parameter_offset);
  chunk.nodes += known.nodes;
  chunk.code.slots = known.slots;
  ++chunk.recurring;
}

// What takeNode() does, from a token.
void ChunkEncoder::takeToken(const DeviceToken& token, EncodedChunk& chunk) const {
  const Handler& handler = table_.handlers()[token.code & DeviceToken::kHandlerMask];
  if (handler.kind == Handler::Kind::kApply || handler.kind == Handler::Kind::kBody) {
    chunk.takeOperator(handler.op);
  }
  const auto take = [&](std::uint32_t column) {
    if (column < kFirstSlot) chunk.takeVariable(column);
  };
  if (namesColumn(handler)) take(token.code >> DeviceToken::kColumnShift & DeviceToken::kColumnMask);
  if (token.code >> DeviceToken::kArgumentShift == DeviceToken::kColumn) take(token.argument);
}

void ChunkEncoder::encodeGraphs(std::span<const std::uint32_t> members, EncodedChunk& chunk, Encoder& encoder) const {
  optimizedDags(members, request_.graphSource(), Tier::kInterpret,
                [&](std::size_t first, std::size_t count, Result<Dag> dag) {
                  const auto own = members.subspan(first, count);
                  for (const std::uint32_t e : own) chunk.tokens += source_.expressions[e].size();
                  if (!dag) return chunk.failures.push_back({own.front(), std::move(dag).error()});
                  encodeGraph(*dag, own, encoder, chunk);
                });
}

void ChunkEncoder::encodeGraph(const Dag& dag, std::span<const std::uint32_t> members, Encoder& encoder,
                               EncodedChunk& chunk) const {
  chunk.nodes += dag.size();
  for (const Node& node : dag.nodes()) takeNode(node, chunk);
  std::vector<std::uint32_t> numbers(dag.parameters().size());
  std::iota(numbers.begin(), numbers.end(), static_cast<std::uint32_t>(chunk.parameters.size()));
  EncodeOptions options = optionsOf(chunk);
  options.parameters = numbers;
  std::vector<std::uint32_t> outputs;
  std::span<const NodeId> roots = dag.roots();
  for (const std::uint32_t member : members) {
    outputs.clear();
    source_.appendOutputs(member, outputs);
    addProgram(member, chunk, [&] {
      const EncodeFault fault = encoder.encode(dag, roots.first(outputs.size()), outputs, options, chunk.code);
      return statusOf(fault, table_, options);
    });
    roots = roots.subspan(outputs.size());
  }
  for (const ParameterSource& parameter : dag.parameters()) {
    chunk.parameters.add(parameter, offsetOf(parameter, source_, members));
  }
}

}  // namespace srjit
