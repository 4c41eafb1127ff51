#include "runtime/code/interpreted/chunk_encoder.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstring>
#include <numeric>
#include <utility>

#include <tbb/enumerable_thread_specific.h>
#include <tbb/parallel_for.h>

#include "compiler/interpreter/encoder.h"
#include "compiler/interpreter/tree_encoder.h"
#include "ir/mix.h"
#include "ir/ops.h"
#include "passes/gradient/deriver.h"
#include "runtime/evaluation/ranges.h"

namespace srjit {

/// A program of one expression in an EncodedChunk; where its parts begin there.
struct EncodedProgram {
  std::size_t token, parameter;  ///< the first of its tokens and of its entries of the table
  std::size_t code, constant;    ///< the first of its expression's
  std::size_t codes;             ///< of its expression
  std::size_t parameter_offset;  ///< ProgramSource::parameterOffset() of its expression
  std::uint32_t nodes, slots, hash;
};

/// Finds programs by the content of their expressions. Const members are thread-safe.
class EncodedGeneration {
 public:
  struct Found {
    const EncodedChunk* chunk = nullptr;  ///< null: not found
    std::size_t program = 0;
  };

  /// Has the programs of these chunks, which must not change meanwhile; in parallel on the calling thread's arena.
  void set(std::span<const EncodedChunk> chunks);
  bool isEmpty() const noexcept { return programs_ == 0; }
  Found find(const ExpressionView& expression, std::uint32_t hash) const noexcept;
  std::size_t bytes() const noexcept { return slots_.capacity() * sizeof(std::uint64_t); }

 private:
  void insert(std::uint64_t slot);

  std::span<const EncodedChunk> chunks_;
  std::size_t programs_ = 0;
  /// Open addressing, at most half full: hash << 32 | EncodedChunk::kMost * chunk + program + 1, or 0.
  std::vector<std::uint64_t> slots_;
};

/// What one thread optimizes and encodes with.
struct EncodeWorker {
  EncodeWorker(Precision precision, Math math, const HandlerTable& table)
      : trees(table.numbers()), optimizer(precision, math), encoder(table.numbers()) {}

  TreeEncoder trees;
  Deriver optimizer;
  Encoder encoder;
  std::vector<std::uint32_t> outputs;  ///< of one expression
};

/// Chunks in memory that is used again.
class EncodedChunks {
 public:
  void clear() noexcept { used_ = 0; }
  /// More chunks, whose contents are left over. Spans of those before are valid until the memory grows.
  std::span<EncodedChunk> add(std::size_t count);
  std::span<const EncodedChunk> used() const noexcept { return std::span(all_).first(used_); }
  /// Those from number `first` on; as valid as those that add() gives.
  std::span<EncodedChunk> from(std::size_t first) noexcept { return std::span(all_).subspan(first, used_ - first); }
  std::size_t bytes() const noexcept;

 private:
  std::vector<EncodedChunk> all_;
  std::size_t used_ = 0;
};

/// Scratch memory for one program's code.
struct EncodeScratch {
  /// The table must outlive the scratch.
  EncodeScratch(Precision precision, Math math, const HandlerTable& table)
      : workers([=, &table] { return EncodeWorker(precision, math, table); }) {}

  tbb::enumerable_thread_specific<EncodeWorker> workers;
  EncodedChunks chunks;          ///< of the last population that looks for programs
  EncodedChunks before;          ///< of the one before
  EncodedGeneration generation;  ///< of `before`
  EncodedChunks others;          ///< of a program that does not look for any

  /// Frees what only speed needs, if there is more than `most` bytes.
  void trim(std::size_t most);

  /// Without the workers, one per thread, which hold no more than the largest expression and the largest number of a
  /// variable take.
  std::size_t bytes() const noexcept;
};

void EncodedChunk::begin(std::size_t first_chosen, std::size_t last_chosen, std::size_t number_of_section) {
  first = first_chosen;
  last = last_chosen;
  section = number_of_section;
  code.tokens.clear();
  code.slots = 0;
  lengths.clear();
  slots.clear();
  parameters.clear();
  failures.clear();
  tokens = nodes = recurring = 0;
  operators.assign(kOpCount, 0);
  variables.clear();
  programs.clear();
  codes.clear();
  constants.clear();
}

void EncodedChunk::refuse(std::vector<Failure> all) {
  failures = std::move(all);
  code.tokens.clear();
  lengths.clear();
  slots.clear();
  parameters.clear();
  programs.clear();
}

void EncodedChunk::beginProgram(const ExpressionView& expression, std::uint32_t hash, std::size_t parameter_offset) {
  const std::span<const std::int32_t> own = expression.codes();
  programs.push_back({.token = code.tokens.size(),
                      .parameter = parameters.size(),
                      .code = codes.size(),
                      .constant = constants.size(),
                      .codes = own.size(),
                      .parameter_offset = parameter_offset,
                      .nodes = 0,
                      .slots = 0,
                      .hash = hash});
  codes.insert(codes.end(), own.begin(), own.end());
  constants.insert(constants.end(), expression.constants().begin(), expression.constants().end());
}

std::size_t EncodedChunk::bytes() const noexcept {
  return code.tokens.capacity() * sizeof(DeviceToken) + lengths.capacity() * sizeof(std::uint32_t) +
         slots.capacity() * sizeof(std::uint32_t) + parameters.heldBytes() + variables.capacity() +
         operators.capacity() + programs.capacity() * sizeof(EncodedProgram) + codes.capacity() * sizeof(std::int32_t) +
         constants.capacity() * sizeof(double);
}

void EncodedGeneration::set(std::span<const EncodedChunk> chunks) {
  chunks_ = chunks;
  programs_ = 0;
  for (const EncodedChunk& chunk : chunks) programs_ += chunk.programs.size();
  if (programs_ == 0 || chunks.size() * EncodedChunk::kMost > UINT32_MAX - 1) {
    programs_ = 0;
    return;
  }
  slots_.resize(std::bit_ceil(2 * programs_));
  tbb::parallel_for(tbb::blocked_range<std::size_t>(0, slots_.size(), std::size_t{1} << 13), [&](const auto& range) {
    std::memset(slots_.data() + range.begin(), 0, range.size() * sizeof(std::uint64_t));
  });
  tbb::parallel_for(std::size_t{0}, chunks.size(), [&](std::size_t c) {
    for (std::size_t p = 0; p < chunks[c].programs.size(); ++p) {
      insert(std::uint64_t{chunks[c].programs[p].hash} << 32 | (EncodedChunk::kMost * c + p + 1));
    }
  });
}

void EncodedGeneration::insert(std::uint64_t slot) {
  const std::size_t mask = slots_.size() - 1;
  for (std::size_t at = slot >> 32 & mask;; at = (at + 1) & mask) {
    std::uint64_t there = 0;
    std::atomic_ref<std::uint64_t> place(slots_[at]);
    if (place.compare_exchange_strong(there, slot, std::memory_order_relaxed)) return;
    // One of many clones is enough, and all of them would take quadratic time.
    if (there >> 32 == slot >> 32) return;
  }
}

EncodedGeneration::Found EncodedGeneration::find(const ExpressionView& expression, std::uint32_t hash) const noexcept {
  const std::size_t mask = slots_.size() - 1;
  for (std::size_t at = hash & mask; slots_[at] != 0; at = (at + 1) & mask) {
    if (slots_[at] >> 32 != hash) continue;
    const auto place = static_cast<std::uint32_t>(slots_[at]) - 1;
    const EncodedChunk& chunk = chunks_[place / EncodedChunk::kMost];
    const EncodedProgram& program = chunk.programs[place % EncodedChunk::kMost];
    // Equal codes have equally many constants; without any, there may be no array.
    const std::span<const double> constants = expression.constants();
    const bool is_same =
        std::ranges::equal(std::span(chunk.codes).subspan(program.code, program.codes), expression.codes()) &&
        (constants.empty() ||
         std::memcmp(chunk.constants.data() + program.constant, constants.data(), constants.size_bytes()) == 0);
    if (is_same) return {&chunk, place % EncodedChunk::kMost};
  }
  return {};
}

std::span<EncodedChunk> EncodedChunks::add(std::size_t count) {
  const std::size_t first = used_;
  if (first + count > all_.size()) all_.resize(first + count);
  used_ = first + count;
  return std::span(all_).subspan(first, count);
}

std::size_t EncodedChunks::bytes() const noexcept {
  std::size_t bytes = 0;
  for (const EncodedChunk& chunk : all_) bytes += chunk.bytes();
  return bytes;
}

void EncodeScratch::trim(std::size_t most) {
  if (bytes() <= most) return;
  before = {};
  others = {};
  generation = {};
}

std::size_t EncodeScratch::bytes() const noexcept {
  return generation.bytes() + chunks.bytes() + before.bytes() + others.bytes();
}

namespace {

/// Of all that a program depends on; not of the place of the expression's parameters.
std::uint32_t contentHash(const ExpressionView& expression) noexcept {
  std::uint64_t hash = expression.size();
  for (const std::int32_t code : expression.codes()) hash = combineFast(hash, static_cast<std::uint32_t>(code));
  for (const double constant : expression.constants()) hash = combineFast(hash, std::bit_cast<std::uint64_t>(constant));
  return static_cast<std::uint32_t>(mix(hash) >> 32);
}

// Expressions that one task encodes: few enough that all threads have some.
constexpr std::size_t kMostOfChunk = EncodedChunk::kMost, kLeastOfChunk = 64;

// Below it, on average, expressions are not looked up in the generation before, since a look-up in vain takes a third
// of the time of encoding them (docs/history/experiments.md).
constexpr std::size_t kLeastTokensToFind = 16;

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

ChunkEncoder::ChunkEncoder(KernelStore& store, const CompileOrder& order, const std::vector<SectionDraft>& sections,
                           const InterpreterLimits& limits)
    : store_(store),
      order_(order),
      source_(order.source),
      sections_(sections),
      limits_(limits),
      table_(store.table({OpFamily::kAll, 8})),
      scratch_(store.encodeScratch().take()),
      needs_graphs_(source_.pipeline || order.filter != nullptr),
      takes_trees_(!needs_graphs_ && source_.isOfTrees()),
      finds_(!needs_graphs_ && source_.simplify && !source_.derivation && source_.variables <= kFirstSlot &&
             order.range.size() == source_.expressions.size() &&
             source_.tokens >= kLeastTokensToFind * source_.expressions.size()) {
  if (scratch_ == nullptr) scratch_ = std::make_shared<EncodeScratch>(source_.precision, source_.math, table_);
  if (finds_ && !source_.is_continued) {
    std::swap(scratch_->chunks, scratch_->before);
    scratch_->generation.set(scratch_->before.used());
  }
  if (!finds_ || !source_.is_continued) all().clear();
  first_ = all().used().size();
}

EncodedChunks& ChunkEncoder::all() { return finds_ ? scratch_->chunks : scratch_->others; }

std::span<EncodedChunk> ChunkEncoder::chunks() { return all().from(first_); }

void ChunkEncoder::finish() {
  scratch_->trim(ScratchPool<EncodeScratch>::kMostBytes);
  store_.encodeScratch().giveBack(std::move(scratch_), finds_);
}

void ChunkEncoder::encode() {
  const std::span<const std::uint32_t> chosen = order_.range;
  const std::size_t size =
      std::clamp(chosen.size() / (std::size_t{4} * order_.threads) + 1, kLeastOfChunk, kMostOfChunk);
  struct Part {
    std::size_t first, last, section;
  };
  std::vector<Part> parts;
  for (std::size_t s = 0; s < sections_.size(); ++s) {
    for (std::size_t first = sections_[s].first; first < sections_[s].last; first += size) {
      parts.push_back({first, std::min(first + size, sections_[s].last), s});
    }
  }
  const std::span<EncodedChunk> added = all().add(parts.size());
  tbb::parallel_for(std::size_t{0}, added.size(), [&](std::size_t c) {
    order_.deadline.check();
    const auto& [first, last, section] = parts[c];
    added[c].begin(first, last, section);
    if (takes_trees_) added[c].variables.resize(sections_[section].numbered(source_.variables));
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
  if (takes_trees_ && encodeTree(tokens, expression, worker, chunk)) return okStatus();
  const ExpressionGraph graph = worker.optimizer.run(tokens, 0, source_.derivation, source_.simplify);
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

// An expression as it is written. False: its graph is to be encoded.
bool ChunkEncoder::encodeTree(const ExpressionView& tokens, std::uint32_t expression, EncodeWorker& worker,
                              EncodedChunk& chunk) const {
  const Tree tree = worker.optimizer.reader().read(tokens);
  EncodeOptions options = optionsOf(chunk);
  options.first_parameter = static_cast<std::uint32_t>(chunk.parameters.size());
  if (!worker.trees.encode(tree, expression, options, {chunk.operators, chunk.variables}, chunk.code)) return false;
  chunk.nodes += tree.nodes.size();
  chunk.parameters.add(tree, chunk.code.parameters, source_.parameterOffset(expression));
  return true;
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
  graphsOf(order_.of(members, Tier::kInterpret), [&](std::size_t first, std::size_t count, Result<Dag> dag) {
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
