#include "runtime/code/interpreted/encode.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <tbb/parallel_for.h>

#include "compiler/interpreter/bytecode.h"
#include "compiler/nvptx/options.h"
#include "ir/ops.h"
#include "runtime/code/costs.h"
#include "runtime/code/interpreted/device_encoding.h"
#include "runtime/code/interpreted/encode_scratch.h"
#include "runtime/code/interpreted/program_linker.h"
#include "runtime/evaluation/optimized_dag.h"
#include "runtime/platform/clock.h"
#include "runtime/platform/guarded.h"

namespace srjit {
namespace {

/// What the columns and slots of a program may take of a block's shared memory: three and two parts of seven, so that
/// two are left for tokens. With four teams, which share the columns of one strip, there is room for four times as many
/// columns as with one; slots are of each team. What keeps to that can be launched so (chooseGeometry).
struct InterpreterLimits {
  std::size_t columns, slots;

  InterpreterLimits(std::size_t shared_bytes, Precision precision) {
    const std::size_t seventh = shared_bytes / 7;
    const std::size_t strip_bytes =
        std::size_t{kBlockThreads / kBlockWarps} * 4 * static_cast<std::size_t>(bytesOf(precision));
    columns = 3 * seventh / strip_bytes;
    slots = 2 * seventh / (kBlockWarps * strip_bytes);
  }
};

// Expressions that one task encodes: few enough that all threads have some.
constexpr std::size_t kMaxEncodedChunk = EncodedChunk::kMost, kMinEncodedChunk = 64;

// Below it, on average, expressions are not looked up in the generation before, since a look-up in vain takes a third
// of the time of encoding them (docs/history/experiments.md).
constexpr std::size_t kLeastTokensToFind = 16;

class ProgramEncoder {
 public:
  ProgramEncoder(const CodeRequest& request, bool uses_device)
      : request_(request),
        uses_device_(uses_device),
        source_(request.source),
        limits_(request.queue.cuda->limits().shared_bytes_per_block, request.source.precision),
        table_(request.store.table({OpFamily::kAll, 8})),
        chosen_(request.chosen),
        scratch_(request.store.encodeScratch().take()) {
    if (scratch_ == nullptr) scratch_ = std::make_unique<EncodeScratch>(source_.precision, source_.math, table_);
  }

  DeviceCode run() {
    const Stopwatch encoding;
    findSections();
    startOnDevice();
    beginChunks();
    const Stopwatch host_share;
    encodeChunks(0);
    if (on_device_) takeFromDevice(host_share.seconds());
    stageColumns();
    code_.report.seconds_passes = encoding.seconds();
    const Stopwatch linking;
    linkPrograms(request_, sections_, chunks_, on_device_ ? &*on_device_ : nullptr, code_);
    code_.report.seconds_codegen = linking.seconds();
    if (on_device_) std::ranges::sort(code_.failures, {}, &Failure::expression);
    // Not after an exception, which may leave work half done in it.
    scratch_->trim(ScratchPool<EncodeScratch>::kMostBytes);
    request_.store.encodeScratch().giveBack(std::move(scratch_), finds_);
    return std::move(code_);
  }

 private:
  // One section for all, unless they have too many variables. Then neighbours share one as long as their columns fit.
  void findSections() {
    const std::size_t count = request_.chosen.size();
    if (source_.variables <= limits_.columns) {
      if (count > 0) sections_.push_back({0, count});
      return;
    }
    std::vector<std::size_t> seen(source_.variables, SIZE_MAX);  // the number of the section that has the column
    std::vector<std::uint32_t> fresh;
    std::size_t columns = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const ExpressionView expression = source_.expressions[request_.chosen[i]];
      const auto findFresh = [&] {
        fresh.clear();
        for (const Token token : expression) {
          if (token.kind == Token::Kind::kVariable && seen[token.index] != sections_.size())
            fresh.push_back(token.index);
        }
        if (source_.derivation) addDerivedVariables(seen, fresh);
        std::sort(fresh.begin(), fresh.end());
        fresh.erase(std::unique(fresh.begin(), fresh.end()), fresh.end());
      };
      findFresh();
      if (i == 0 || columns + fresh.size() > limits_.columns) {
        sections_.push_back({i, i});
        columns = 0;
        findFresh();
      }
      for (const std::uint32_t variable : fresh) {
        seen[variable] = sections_.size();
        sections_.back().variables.push_back(variable);
      }
      columns += fresh.size();
      sections_.back().last = i + 1;
    }
    for (SectionDraft& section : sections_) numberVariables(section);
  }

  // Target and weights.
  void addDerivedVariables(std::span<const std::size_t> seen, std::vector<std::uint32_t>& fresh) const {
    for (std::uint32_t v = source_.derivation->columns; v < source_.derivation->variables(); ++v) {
      if (seen[v] != sections_.size()) fresh.push_back(v);
    }
  }

  void numberVariables(SectionDraft& section) const {
    if (source_.variables <= kFirstSlot) {
      section.variables.clear();
      return;
    }
    section.numbers.assign(source_.variables, EncodeOptions::kNotStaged);
    for (std::uint32_t number = 0; number < section.variables.size(); ++number) {
      section.numbers[section.variables[number]] = number;
    }
  }

  // The device encodes the first expressions, and the host meanwhile the others, so that both end at about the same
  // time.
  void startOnDevice() {
    std::shared_ptr<const FrontEnd> front_end = request_.store.frontEnd();
    // With more there may be several sections; and workers have memory for a number per variable up to the largest.
    const bool has_few_variables = source_.variables <= limits_.columns;
    if (!uses_device_ || front_end == nullptr || !has_few_variables || request_.filter != nullptr ||
        chosen_.size() != source_.expressions.size()) {
      return;
    }
    const double share = request_.store.deviceShare().of(shareByCosts());
    const std::size_t blocks = ceilDivide(chosen_.size(), Population::kBlock);
    const auto of_device = static_cast<std::size_t>(share * static_cast<double>(blocks));
    const std::size_t count = Population::kBlock * std::clamp(of_device, std::size_t{1}, blocks - 1);
    const CurrentContext current(*request_.queue.cuda);
    on_device_.emplace(request_, count, std::move(front_end), static_cast<std::uint32_t>(limits_.slots));
    takeChosen(chosen_.subspan(count));
  }

  double shareByCosts() const { return shareOfDevice(request_.threads, request_.queue.cuda->limits().multiprocessors); }

  // What the device left is encoded behind the host's share, which took `seconds`.
  void takeFromDevice(double seconds) {
    const std::size_t share = chosen_.size();
    {
      const CurrentContext current(*request_.queue.cuda);
      on_device_->finish();
      // Without these times the next shares are as before.
      (void)guarded([&] {
        request_.store.deviceShare().record(shareByCosts(), {source_.expressions.size() - share, on_device_->seconds()},
                                            {share, seconds});
        return okStatus();
      });
    }
    takeChosen(on_device_->left());
    encodeChunks(share);
    code_.report.tokens += on_device_->expressionTokens();
    code_.report.nodes += on_device_->nodes();
    code_.report.on_device = on_device_->programs();
  }

  // Beside those that were taken before.
  void takeChosen(std::span<const std::uint32_t> more) {
    beside_device_.insert(beside_device_.end(), more.begin(), more.end());
    chosen_ = beside_device_;
    sections_[0].last = chosen_.size();
  }

  void beginChunks() {
    // Passes from outside of the library and filters need graphs of whole chunks.
    needs_graphs_ = source_.pipeline || request_.filter != nullptr;
    finds_ = !needs_graphs_ && !source_.derivation && source_.variables <= kFirstSlot &&
             chosen_.size() == source_.expressions.size() &&
             source_.tokens >= kLeastTokensToFind * source_.expressions.size();
    EncodedChunks& chunks = finds_ ? scratch_->chunks : scratch_->others;
    if (finds_ && !source_.is_continued) {
      std::swap(scratch_->chunks, scratch_->before);
      scratch_->generation.set(scratch_->before.used());
    }
    if (!finds_ || !source_.is_continued) chunks.clear();
    first_chunk_ = chunks.used().size();
  }

  // Those of the chosen from `from` on.
  void encodeChunks(std::size_t from) {
    const std::size_t size =
        std::clamp(chosen_.size() / (std::size_t{4} * request_.threads) + 1, kMinEncodedChunk, kMaxEncodedChunk);
    struct Range {
      std::size_t first, last, section;
    };
    std::vector<Range> ranges;
    for (std::size_t s = 0; s < sections_.size(); ++s) {
      for (std::size_t first = std::max(sections_[s].first, from); first < sections_[s].last; first += size) {
        ranges.push_back({first, std::min(first + size, sections_[s].last), s});
      }
    }
    EncodedChunks& chunks = finds_ ? scratch_->chunks : scratch_->others;
    const std::span<EncodedChunk> added = chunks.add(ranges.size());
    tbb::parallel_for(std::size_t{0}, added.size(), [&](std::size_t c) {
      request_.deadline.check();
      added[c].begin(ranges[c].first, ranges[c].last, ranges[c].section);
      EncodeWorker& worker = scratch_->workers.local();
      if (needs_graphs_) {
        encodeGraphs(added[c], worker.encoder);
      } else {
        encodeExpressions(added[c], worker);
      }
    });
    chunks_ = chunks.from(first_chunk_);
  }

  std::span<const std::uint32_t> membersOf(const EncodedChunk& chunk) const {
    return chosen_.subspan(chunk.first, chunk.last - chunk.first);
  }

  EncodeOptions encodeOptions(const EncodedChunk& chunk) const {
    EncodeOptions options;
    options.columns = sections_[chunk.section].numbers;
    options.staged_columns = kFirstSlot;
    options.max_slots = static_cast<std::uint32_t>(limits_.slots);
    options.joins_sums = source_.derivation && source_.derivation->isSummed();
    return options;
  }

  void takeNode(const Node& node, EncodedChunk& chunk) const {
    if (node.isOperator()) {
      chunk.operators[static_cast<std::size_t>(node.op)] = 1;
    } else if (node.kind == Token::Kind::kVariable) {
      const std::vector<std::uint32_t>& numbers = sections_[chunk.section].numbers;
      if (numbers.empty()) return takeVariable(node.index, chunk);
      // Others are refused.
      const bool is_known = node.index < numbers.size() && numbers[node.index] != EncodeOptions::kNotStaged;
      if (is_known) takeVariable(numbers[node.index], chunk);
    }
  }

  static void takeVariable(std::uint32_t number, EncodedChunk& chunk) {
    if (number >= chunk.variables.size()) chunk.variables.resize(number + std::size_t{1});
    chunk.variables[number] = 1;
  }

  // The program that `encode` appends, or its failure.
  template <class Encode>
  static void addProgram(std::uint32_t expression, EncodedChunk& chunk, const Encode& encode) {
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

  // The standard passes, one expression at a time.
  void encodeExpressions(EncodedChunk& chunk, EncodeWorker& worker) const {
    for (const std::uint32_t expression : membersOf(chunk)) {
      const ExpressionView tokens = source_.expressions[expression];
      chunk.tokens += tokens.size();
      addProgram(expression, chunk, [&] {
        return finds_ ? findOrEncode(tokens, expression, worker, chunk)
                      : encodeExpression(tokens, expression, worker, chunk);
      });
    }
  }

  // The program of the generation before, or a new one, and its record for the next generation.
  Status findOrEncode(const ExpressionView& tokens, std::uint32_t expression, EncodeWorker& worker,
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

  Status encodeExpression(const ExpressionView& tokens, std::uint32_t expression, EncodeWorker& worker,
                          EncodedChunk& chunk) const {
    const ExpressionGraph graph = worker.optimizer.run(tokens, 0, source_.derivation);
    chunk.nodes += graph.members.size();
    for (const NodeId id : graph.members) takeNode(graph.dag.node(id), chunk);
    EncodeOptions options = encodeOptions(chunk);
    options.first_parameter = static_cast<std::uint32_t>(chunk.parameters.size());
    worker.outputs.clear();
    source_.appendOutputs(expression, worker.outputs);
    const EncodeFault fault = worker.encoder.encode(graph, worker.outputs, options, chunk.code);
    if (!fault.isNone()) return statusOf(fault, table_, options);
    for (const NodeId id : chunk.code.parameters) addParameter(graph.dag, id, expression, chunk.parameters);
    return okStatus();
  }

  // The program of an equal expression of the generation before.
  void copyProgram(const EncodedChunk& from, std::size_t number, std::uint32_t expression, EncodedChunk& chunk) const {
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
  void takeToken(const DeviceToken& token, EncodedChunk& chunk) const {
    const Handler& handler = table_.handlers()[token.code & DeviceToken::kHandlerMask];
    if (handler.kind == Handler::Kind::kApply || handler.kind == Handler::Kind::kBody) {
      chunk.operators[static_cast<std::size_t>(handler.op)] = 1;
    }
    const auto take = [&](std::uint32_t column) {
      if (column < kFirstSlot) takeVariable(column, chunk);
    };
    if (namesColumn(handler)) take(token.code >> DeviceToken::kColumnShift & DeviceToken::kColumnMask);
    if (token.code >> DeviceToken::kArgumentShift == DeviceToken::kColumn) take(token.argument);
  }

  static bool namesColumn(const Handler& handler) {
    using enum Handler::Kind;
    if (handler.kind == kApply) return handler.operands.find('v') != OperandForm::npos;
    return handler.kind == kPushColumn || handler.kind == kArgumentColumn || handler.kind == kKeepProductSum;
  }

  void addParameter(const Dag& dag, NodeId id, std::uint32_t expression, ParameterTable& parameters) const {
    const Node& node = dag.node(id);
    if (node.kind == Token::Kind::kConstant) return parameters.addLiteral(node.value);
    parameters.add(dag.parameters()[node.index], source_.parameterOffset(expression));
  }

  void encodeGraphs(EncodedChunk& chunk, Encoder& encoder) const {
    const std::span<const std::uint32_t> members = membersOf(chunk);
    optimizedDags(members, request_.graphSource(), Tier::kInterpret,
                  [&](std::size_t first, std::size_t count, Result<Dag> dag) {
                    for (const std::uint32_t e : members.subspan(first, count)) {
                      chunk.tokens += source_.expressions[e].size();
                    }
                    if (!dag) return chunk.failures.push_back({members[first], std::move(dag).error()});
                    encodeGraph(*dag, members.subspan(first, count), encoder, chunk);
                  });
  }

  void encodeGraph(const Dag& dag, std::span<const std::uint32_t> members, Encoder& encoder,
                   EncodedChunk& chunk) const {
    chunk.nodes += dag.size();
    for (const Node& node : dag.nodes()) takeNode(node, chunk);
    std::vector<std::uint32_t> numbers(dag.parameters().size());
    std::iota(numbers.begin(), numbers.end(), static_cast<std::uint32_t>(chunk.parameters.size()));
    EncodeOptions options = encodeOptions(chunk);
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
      chunk.parameters.add(parameter,
                           parameter.isLiteral() ? 0 : source_.parameterOffset(members[parameter.expression]));
    }
  }

  // What all chunks need: the columns of sections, and the family of the operators.
  void stageColumns() {
    std::vector<bool> used_ops(kOpCount);
    std::size_t variables = 0;  // columns of a filter may be among them
    for (const EncodedChunk& chunk : chunks_) variables = std::max(variables, chunk.variables.size());
    if (on_device_) variables = std::max(variables, on_device_->variables().size());
    // Tokens that name no column have column 0 there, so it has a place even if no program needs it.
    for (SectionDraft& section : sections_) {
      section.staged_as.assign(std::max<std::size_t>(variables, 1), 0);
      section.uses.assign(section.staged_as.size(), false);
    }
    for (const EncodedChunk& chunk : chunks_) {
      code_.report.tokens += chunk.tokens;
      code_.report.nodes += chunk.nodes;
      code_.report.recurring += chunk.recurring;
      for (std::size_t op = 0; op < kOpCount; ++op) used_ops[op] = used_ops[op] || chunk.operators[op] != 0;
      for (std::size_t v = 0; v < chunk.variables.size(); ++v) {
        if (chunk.variables[v] != 0) sections_[chunk.section].uses[v] = true;
      }
    }
    if (on_device_) {
      for (std::size_t op = 0; op < kOpCount; ++op) used_ops[op] = used_ops[op] || on_device_->operators()[op] != 0;
      for (std::size_t v = 0; v < on_device_->variables().size(); ++v) {
        if (on_device_->variables()[v] != 0) sections_[0].uses[v] = true;
      }
    }
    for (SectionDraft& section : sections_) {
      for (std::uint32_t v = 0; v < section.staged_as.size(); ++v) {
        if (!section.uses[v]) continue;
        section.staged_as[v] = static_cast<std::uint32_t>(section.columns.size());
        section.columns.push_back(section.variables.empty() ? v : section.variables[v]);
      }
    }
    refuseWideSections();
    std::vector<Op> ops;
    for (std::size_t op = 0; op < kOpCount; ++op) {
      if (used_ops[op]) ops.push_back(static_cast<Op>(op));
    }
    code_.interpreter.emplace();
    code_.interpreter->family = familyOf(ops);
  }

  // An expression of more columns than fit is a section of its own.
  void refuseWideSections() {
    for (EncodedChunk& chunk : chunks_) {
      const std::size_t wanted = sections_[chunk.section].columns.size();
      if (wanted <= limits_.columns) continue;
      chunk.failures.clear();
      for (const std::uint32_t expression : membersOf(chunk)) {
        chunk.failures.push_back({expression, tooManyColumns(wanted)});
      }
      chunk.code.tokens.clear();
      chunk.lengths.clear();
      chunk.slots.clear();
      chunk.parameters.clear();
      chunk.programs.clear();
    }
  }

  Error tooManyColumns(std::size_t wanted) const {
    return {Errc::kUnsupported,
            fmt::format("{} columns, but the interpreter takes at most {} on this device", wanted, limits_.columns),
            {}};
  }

  const CodeRequest& request_;
  bool uses_device_;  ///< to encode, if the population is one for that
  const ProgramSource& source_;
  InterpreterLimits limits_;
  const HandlerTable& table_;                 ///< of all operators
  std::span<const std::uint32_t> chosen_;     ///< that are encoded here: all, or those beside the device
  std::vector<std::uint32_t> beside_device_;  ///< the host's share, then what the device left
  std::optional<DeviceEncoding> on_device_;
  std::unique_ptr<EncodeScratch> scratch_;
  std::vector<SectionDraft> sections_;
  std::span<EncodedChunk> chunks_;  ///< in the scratch
  std::size_t first_chunk_ = 0;     ///< of these, in the scratch
  bool needs_graphs_ = false;
  bool finds_ = false;  ///< whether programs of the generation before are looked up
  DeviceCode code_;
};

}  // namespace

std::size_t stagedColumnLimit(const DeviceLimits& limits, Precision precision) {
  return InterpreterLimits(limits.shared_bytes_per_block, precision).columns;
}

bool isEncodedOnDevice(const ProgramSource& source) {
  return !source.derivation && !source.pipeline && isEncodedOnDevice(source.expressions.size(), source.tokens);
}

bool isEncodedOnDevice(std::size_t expressions, std::size_t tokens) {
  return expressions >= kLeastEncodedOnDevice && tokens < kLeastTokensToFind * expressions;
}

std::size_t mostPartsForDevice(std::size_t expressions) {
  constexpr std::size_t kLeastOfPart = kLeastEncodedOnDevice + kLeastEncodedOnDevice / 4;
  return std::max(expressions / kLeastOfPart, std::size_t{1});
}

// What the device encodes takes more of its memory, so lack of it is none of the host's alone.
DeviceCode encodeForDevice(const CodeRequest& request) {
  if (isEncodedOnDevice(request.source)) {
    try {
      return ProgramEncoder(request, true).run();
    } catch (const CudaFailure& failure) {
      if (failure.code() != CUDA_ERROR_OUT_OF_MEMORY) throw;
    }
  }
  return ProgramEncoder(request, false).run();
}

}  // namespace srjit
