#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>
#include <tbb/parallel_for.h>

#include "compiler/interpreter/encoder.h"
#include "compiler/nvptx/options.h"
#include "ir/ops.h"
#include "runtime/code/interpreted/chunk_encoder.h"
#include "runtime/code/makers.h"
#include "runtime/platform/clock.h"

namespace srjit {

namespace {

/// Divides expressions by their variables.
class SectionFinder {
 public:
  SectionFinder(const CompileOrder& order, const InterpreterLimits& limits)
      : order_(order), source_(order.source), limits_(limits), seen_(source_.variables, SIZE_MAX) {}

  std::vector<SectionDraft> run() {
    for (std::size_t i = 0; i < order_.range.size(); ++i) add(i);
    for (SectionDraft& section : sections_) numberVariables(section);
    return std::move(sections_);
  }

 private:
  void add(std::size_t i) {
    findFresh(i);
    if (i == 0 || columns_ + fresh_.size() > limits_.columns) {
      sections_.push_back({i, i});
      columns_ = 0;
      findFresh(i);
    }
    for (const std::uint32_t variable : fresh_) {
      seen_[variable] = sections_.size();
      sections_.back().variables.push_back(variable);
    }
    columns_ += fresh_.size();
    sections_.back().last = i + 1;
  }

  // Its variables that the last section lacks; a derivation's variables include the target and weights.
  void findFresh(std::size_t i) {
    fresh_.clear();
    const auto take = [&](std::uint32_t variable) {
      if (seen_[variable] != sections_.size()) fresh_.push_back(variable);
    };
    for (const Token token : source_.expressions[order_.range[i]]) {
      if (token.kind == Token::Kind::kVariable) take(token.index);
    }
    if (source_.derivation) {
      for (std::uint32_t v = source_.derivation->columns; v < source_.derivation->variables(); ++v) take(v);
    }
    std::ranges::sort(fresh_);
    fresh_.erase(std::ranges::unique(fresh_).begin(), fresh_.end());
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

  const CompileOrder& order_;
  const ProgramSource& source_;
  const InterpreterLimits& limits_;
  std::vector<std::size_t> seen_;  ///< by variable: one more than the number of the section that has it
  std::vector<std::uint32_t> fresh_;
  std::size_t columns_ = 0;  ///< of the last section
  std::vector<SectionDraft> sections_;
};

}  // namespace

InterpreterLimits::InterpreterLimits(const DeviceLimits& limits, Precision precision) {
  const std::size_t seventh = limits.shared_bytes_per_block / 7;
  const std::size_t strip_bytes =
      std::size_t{kBlockThreads / kBlockWarps} * 4 * static_cast<std::size_t>(bytesOf(precision));
  columns = 3 * seventh / strip_bytes;
  slots = 2 * seventh / (kBlockWarps * strip_bytes);
}

std::optional<std::uint32_t> SectionDraft::numberOf(std::uint32_t variable) const {
  if (numbers.empty()) return variable;
  if (variable >= numbers.size() || numbers[variable] == EncodeOptions::kNotStaged) return std::nullopt;
  return numbers[variable];
}

void SectionDraft::stage(const std::vector<bool>& uses) {
  staged_as.assign(uses.size(), 0);
  for (std::uint32_t v = 0; v < uses.size(); ++v) {
    if (!uses[v]) continue;
    staged_as[v] = stagedColumns();
    columns.push_back(variables.empty() ? v : variables[v]);
  }
}

std::vector<SectionDraft> findSections(const CompileOrder& order, const InterpreterLimits& limits) {
  if (order.source.variables > limits.columns) return SectionFinder(order, limits).run();
  if (order.range.empty()) return {};
  return {{0, order.range.size()}};
}

namespace {

// A launch takes some microseconds, so programs of many slots are launched apart only where there are many programs.
constexpr std::size_t kLeastToDivide = 1024;

/// Blocks have slots for their neediest program, and with many slots a multiprocessor holds few of them. So programs
/// that need more than these are launched apart, where at least half need no more. Measured for normal equations of
/// 10,000 to 250,000 expressions on an H100: ten of f32 are better than eight or no bound
/// (docs/history/experiments.md).
constexpr std::uint32_t fewSlots(Precision precision) {
  return static_cast<std::uint32_t>(10 * sizeof(float)) / static_cast<std::uint32_t>(bytesOf(precision));
}

/// Tokens of a program are linked: they get the handlers of the family in use, the numbers of staged columns, and their
/// places in the table of parameters.
struct TokenLinks {
  std::span<const std::uint16_t> handlers;   ///< by the number in the family of all operators
  std::span<const std::uint32_t> staged_as;  ///< by variable
  std::uint32_t staged_columns;

  std::uint32_t columnOf(std::uint32_t column) const {
    return column < kFirstSlot ? staged_as[column] : column - kFirstSlot + staged_columns;
  }
  DeviceToken linked(DeviceToken token, std::uint32_t first_parameter) const {
    const std::uint32_t kind = token.code >> DeviceToken::kArgumentShift;
    const std::uint32_t column = token.code >> DeviceToken::kColumnShift & DeviceToken::kColumnMask;
    token.code = handlers[token.code & DeviceToken::kHandlerMask] | columnOf(column) << DeviceToken::kColumnShift |
                 kind << DeviceToken::kArgumentShift;
    if (kind == DeviceToken::kParameter) token.argument += first_parameter;
    if (kind == DeviceToken::kColumn) token.argument = columnOf(token.argument);
    return token;
  }
};

/// Puts the programs of `chunks`, which are in the order of `sections`, behind one another, with the handlers of the
/// family in code.interpreter, and copies them to the device; adds their parameters and failures to `code`. Programs of
/// a section that need many slots may be launched apart. Without programs there is no code.interpreter afterwards.
/// Throws std::length_error for more than 2^32 tokens.
class ProgramLinker {
 public:
  ProgramLinker(KernelStore& store, std::span<const SectionDraft> sections, std::span<const EncodedChunk> chunks,
                DeviceCode& code)
      : store_(store), sections_(sections), chunks_(chunks), code_(code) {}

  void run() {
    InterpreterCode& code = *code_.interpreter;
    std::vector<Starts> starts(chunks_.size());
    std::size_t parameters = 0, patches = 0;
    for (std::size_t c = 0; c < chunks_.size(); ++c) {
      const EncodedChunk& part = chunks_[c];
      starts[c].parameter = parameters;
      starts[c].patch = patches;
      parameters += part.parameters.size();
      patches += part.parameters.patches();
      code_.failures.insert(code_.failures.end(), part.failures.begin(), part.failures.end());
    }
    Starts::Programs next;
    std::vector<std::uint32_t> map;
    std::size_t first = 0;
    for (const SectionDraft& draft : sections_) {
      std::size_t last = first;
      while (last < chunks_.size() && chunks_[last].first < draft.last) ++last;
      addSections(draft, chunks_.subspan(first, last - first), std::span(starts).subspan(first, last - first),
                  map.size(), next);
      map.insert(map.end(), draft.columns.begin(), draft.columns.end());
      first = last;
    }
    if (next.token > UINT32_MAX) throw std::length_error("more than 2^32 tokens");
    if (next.program == 0) {
      code_.interpreter.reset();
      return;
    }
    code.offsets.resize(next.program + 1);
    code.offsets.back() = static_cast<std::uint32_t>(next.token);
    takeMemory(map);
    code_.parameters.resize(parameters, patches);
    upload(starts, map);
  }

 private:
  /// The handlers of the family in use, by their number in that of all operators.
  std::vector<std::uint16_t> handlersOfFamily() const {
    const HandlerTable& from = store_.table({OpFamily::kAll, 8});
    const HandlerTable& to = store_.table({code_.interpreter->family, 8});
    std::vector<std::uint16_t> numbers;
    for (const Handler& handler : from.handlers()) numbers.push_back(static_cast<std::uint16_t>(to.find(handler)));
    return numbers;
  }

  /// Where the parts of a chunk begin in the whole program.
  struct Starts {
    struct Programs {
      std::size_t program = 0, token = 0;
    };
    Programs few, many;  ///< of programs by their slots
    std::size_t parameter = 0, patch = 0;
    std::uint32_t bound = 0;  ///< the most slots of those with few
  };

  // The most slots of programs that are launched together, if others are launched apart; else the most that there are.
  std::uint32_t slotBound(std::span<const EncodedChunk> chunks) const {
    const std::uint32_t bound = fewSlots(store_.precision());
    std::uint32_t most = 0;
    std::size_t programs = 0, few = 0;
    for (const EncodedChunk& chunk : chunks) {
      most = std::max(most, chunk.code.slots);
      programs += chunk.slots.size();
    }
    if (most <= bound || programs < kLeastToDivide) return most;
    for (const EncodedChunk& chunk : chunks) {
      few += static_cast<std::size_t>(std::ranges::count_if(chunk.slots, [&](auto slots) { return slots <= bound; }));
    }
    return 2 * few >= programs ? bound : most;
  }

  // Programs of one section for at most `bound` slots, and of one for more.
  void addSections(const SectionDraft& draft, std::span<const EncodedChunk> chunks, std::span<Starts> starts,
                   std::size_t map_offset, Starts::Programs& next) {
    const std::uint32_t bound = slotBound(chunks);
    for (const bool has_many : {false, true}) {
      InterpreterSection section{.first_program = static_cast<std::uint32_t>(next.program),
                                 .map_offset = static_cast<std::uint32_t>(map_offset),
                                 .staged_columns = draft.stagedColumns()};
      for (std::size_t c = 0; c < chunks.size(); ++c) {
        const EncodedChunk& chunk = chunks[c];
        starts[c].bound = bound;
        (has_many ? starts[c].many : starts[c].few) = next;
        if (chunk.code.slots <= bound) {
          if (has_many) continue;
          next.program += chunk.lengths.size();
          next.token += chunk.code.tokens.size();
          section.slots = std::max(section.slots, chunk.code.slots);
          continue;
        }
        for (std::size_t p = 0; p < chunk.lengths.size(); ++p) {
          if ((chunk.slots[p] > bound) != has_many) continue;
          ++next.program;
          next.token += chunk.lengths[p];
          section.slots = std::max(section.slots, chunk.slots[p]);
        }
      }
      section.programs = static_cast<std::uint32_t>(next.program) - section.first_program;
      if (section.programs > 0) code_.interpreter->sections.push_back(section);
    }
  }

  // Writes a chunk to its place: tokens to `tokens`, the rest to the code.
  void place(const EncodedChunk& chunk, const Starts& at, std::span<const std::uint16_t> handlers,
             DeviceToken* tokens) {
    const SectionDraft& section = sections_[chunk.section];
    const TokenLinks links{handlers, section.staged_as, section.stagedColumns()};
    const auto first_parameter = static_cast<std::uint32_t>(at.parameter);
    code_.parameters.put(at.parameter, at.patch, chunk.parameters);
    std::uint32_t* const offsets = code_.interpreter->offsets.data();
    Starts::Programs few = at.few, many = at.many;
    const DeviceToken* from = chunk.code.tokens.data();
    for (std::size_t p = 0; p < chunk.lengths.size(); ++p) {
      Starts::Programs& own = chunk.slots[p] > at.bound ? many : few;
      const std::uint32_t length = chunk.lengths[p];
      offsets[own.program++] = static_cast<std::uint32_t>(own.token);
      std::transform(from, from + length, tokens + own.token,
                     [&](DeviceToken token) { return links.linked(token, first_parameter); });
      own.token += length;
      from += length;
    }
  }

  // Tokens, offsets and the map, in one block.
  void takeMemory(const std::vector<std::uint32_t>& map) {
    InterpreterCode& code = *code_.interpreter;
    const std::size_t token_bytes = code.offsets.back() * sizeof(DeviceToken);
    const std::size_t offset_bytes = code.offsets.size() * sizeof(std::uint32_t);
    const CurrentContext current(*store_.queue().cuda);
    code.memory = DeviceBuffer(store_.queue().uploads, token_bytes + offset_bytes + map.size() * sizeof(std::uint32_t));
    code.tokens = code.memory.address();
    code.program_offsets = code.tokens + token_bytes;
    code.column_map = code.program_offsets + offset_bytes;
  }

  void upload(const std::vector<Starts>& starts, const std::vector<std::uint32_t>& map) {
    InterpreterCode& code = *code_.interpreter;
    const std::vector<std::uint16_t> handlers = handlersOfFamily();
    const std::size_t token_bytes = code.offsets.back() * sizeof(DeviceToken);
    const DeviceQueue& queue = store_.queue();
    const CurrentContext current(*queue.cuda);
    const std::size_t bytes = token_bytes + (code.offsets.size() + map.size()) * sizeof(std::uint32_t);
    const std::shared_ptr<PinnedBuffer> staging = queue.pinned.take(bytes);
    auto* const tokens = static_cast<DeviceToken*>(staging->data());
    tbb::parallel_for(std::size_t{0}, chunks_.size(),
                      [&](std::size_t c) { place(chunks_[c], starts[c], handlers, tokens); });
    auto* const words = reinterpret_cast<std::uint32_t*>(tokens + code.offsets.back());
    std::ranges::copy(map, std::ranges::copy(code.offsets, words).out);
    queue.uploads->complete([&] { queue.uploads->copyToDevice(code.tokens, tokens, bytes); });
  }

  KernelStore& store_;
  std::span<const SectionDraft> sections_;
  std::span<const EncodedChunk> chunks_;
  DeviceCode& code_;
};

/// Encodes a population in chunks, and joins them.
class ProgramEncoder {
 public:
  ProgramEncoder(KernelStore& store, const CompileOrder& order)
      : store_(store),
        order_(order),
        limits_(store.queue().cuda->limits(), order.source.precision),
        sections_(findSections(order, limits_)),
        chunks_(store, order, sections_, limits_) {}

  DeviceCode run() {
    const Stopwatch encoding;
    chunks_.encode();
    stageColumns();
    refuseWideSections();
    code_.info.seconds_passes = encoding.seconds();
    const Stopwatch linking;
    ProgramLinker(store_, sections_, chunks_.chunks(), code_).run();
    code_.info.seconds_codegen = linking.seconds();
    std::ranges::stable_sort(code_.failures, {}, &Failure::expression);
    chunks_.finish();
    return std::move(code_);
  }

 private:
  // What all chunks need: the columns of sections, and the family of the operators.
  void stageColumns() {
    // Tokens that name no column have column 0 there, so it has a place even if no program needs it. Columns of a
    // filter may be among the variables.
    std::size_t variables = 1;
    for (const EncodedChunk& chunk : chunks_.chunks()) variables = std::max(variables, chunk.variables.size());
    std::vector<std::vector<bool>> uses(sections_.size(), std::vector<bool>(variables));
    std::vector<bool> used_ops(kOpCount);
    for (const EncodedChunk& chunk : chunks_.chunks()) {
      code_.info.nodes_before += chunk.tokens;
      code_.info.nodes_after += chunk.nodes;
      code_.info.recurring += chunk.recurring;
      for (std::size_t op = 0; op < kOpCount; ++op) used_ops[op] = used_ops[op] || chunk.operators[op] != 0;
      for (std::size_t v = 0; v < chunk.variables.size(); ++v) {
        if (chunk.variables[v] != 0) uses[chunk.section][v] = true;
      }
    }
    for (std::size_t s = 0; s < sections_.size(); ++s) sections_[s].stage(uses[s]);
    OpFamily family = OpFamily::kArithmetic;
    for (std::size_t op = 0; op < kOpCount; ++op) {
      if (used_ops[op]) family = std::max(family, familyOf(static_cast<Op>(op)));
    }
    code_.interpreter.emplace().family = family;
  }

  void refuseWideSections() {
    for (EncodedChunk& chunk : chunks_.chunks()) {
      const std::size_t wanted = sections_[chunk.section].columns.size();
      if (wanted <= limits_.columns) continue;
      const Error refusal{
          Errc::kUnsupported,
          fmt::format("{} columns, but the interpreter takes at most {} on this device", wanted, limits_.columns),
          {}};
      std::vector<Failure> failures;
      for (std::size_t i = chunk.first; i < chunk.last; ++i) failures.push_back({order_.range[i], refusal});
      chunk.refuse(std::move(failures));
    }
  }

  KernelStore& store_;
  const CompileOrder& order_;
  const InterpreterLimits limits_;
  std::vector<SectionDraft> sections_;
  ChunkEncoder chunks_;
  DeviceCode code_;
};

}  // namespace

std::size_t stagedColumnLimit(const DeviceLimits& limits, Precision precision) {
  return InterpreterLimits(limits, precision).columns;
}

DeviceCode encodeForDevice(KernelStore& store, const CompileOrder& order) { return ProgramEncoder(store, order).run(); }

}  // namespace srjit
