#include "runtime/code/program_linker.h"

#include <algorithm>
#include <memory>
#include <stdexcept>

#include <tbb/parallel_for.h>

#include "compiler/interpreter/bytecode.h"

namespace srjit {
namespace {

// Blocks have slots for their neediest program, and with many slots a multiprocessor holds few of them. So programs
// that need more than these are launched apart, where at least half need no more. Measured for normal equations of
// 10,000 to 250,000 expressions on an H100: ten of f32 are better than eight or no bound (docs/experiments.md). A
// launch takes some microseconds, so there must be many programs.
constexpr std::size_t kFewSlotBytes = 10 * sizeof(float), kLeastToDivide = 1024;

/// Of one call of linkPrograms().
class ProgramLinker {
 public:
  ProgramLinker(const CodeRequest& request, std::span<const SectionDraft> sections,
                std::span<const EncodedChunk> chunks, DeviceCode& code)
      : request_(request), sections_(sections), chunks_(chunks), code_(code) {}

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
    code_.parameters.resize(parameters, patches);
    upload(starts, map);
  }

 private:
  /// Where the tokens of a chunk find what they name.
  struct Places {
    std::span<const std::uint16_t> handlers;   ///< by the number in the family of all operators
    std::span<const std::uint32_t> staged_as;  ///< SectionDraft::staged_as
    std::uint32_t staged_columns;
    std::uint32_t first_parameter;

    std::uint32_t columnOf(std::uint32_t column) const {
      return column < kFirstSlot ? staged_as[column] : column - kFirstSlot + staged_columns;
    }
    DeviceToken linked(DeviceToken token) const {
      const std::uint32_t kind = token.code >> DeviceToken::kArgumentShift;
      const std::uint32_t column = token.code >> DeviceToken::kColumnShift & DeviceToken::kColumnMask;
      token.code = handlers[token.code & DeviceToken::kHandlerMask] | columnOf(column) << DeviceToken::kColumnShift |
                   kind << DeviceToken::kArgumentShift;
      if (kind == DeviceToken::kParameter) token.argument += first_parameter;
      if (kind == DeviceToken::kColumn) token.argument = columnOf(token.argument);
      return token;
    }
  };

  /// The handlers of the family in use, by their number in that of all operators.
  std::vector<std::uint16_t> handlersOfFamily() const {
    const HandlerTable& from = request_.store.table({OpFamily::kAll, 8});
    const HandlerTable& to = request_.store.table({code_.interpreter->family, 8});
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
    const auto bound =
        static_cast<std::uint32_t>(kFewSlotBytes / static_cast<std::size_t>(bytesOf(request_.source.precision)));
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
                                 .staged_columns = static_cast<std::uint32_t>(draft.columns.size())};
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
    const Places places{handlers, section.staged_as, static_cast<std::uint32_t>(section.columns.size()),
                        static_cast<std::uint32_t>(at.parameter)};
    code_.parameters.put(at.parameter, at.patch, chunk.parameters);
    std::uint32_t* const offsets = code_.interpreter->offsets.data();
    Starts::Programs few = at.few, many = at.many;
    const DeviceToken* from = chunk.code.tokens.data();
    for (std::size_t p = 0; p < chunk.lengths.size(); ++p) {
      Starts::Programs& own = chunk.slots[p] > at.bound ? many : few;
      const std::uint32_t length = chunk.lengths[p];
      offsets[own.program++] = static_cast<std::uint32_t>(own.token);
      std::transform(from, from + length, tokens + own.token, [&](DeviceToken token) { return places.linked(token); });
      own.token += length;
      from += length;
    }
  }

  void upload(const std::vector<Starts>& starts, const std::vector<std::uint32_t>& map) {
    InterpreterCode& code = *code_.interpreter;
    const std::size_t token_bytes = code.offsets.back() * sizeof(DeviceToken);
    const std::size_t offset_bytes = code.offsets.size() * sizeof(std::uint32_t);
    const std::size_t map_bytes = map.size() * sizeof(std::uint32_t);
    const DeviceQueue& queue = request_.queue;
    const CurrentContext current(*queue.cuda);
    const std::shared_ptr<PinnedBuffer> staging = queue.pinned.take(token_bytes + offset_bytes + map_bytes);
    auto* const bytes = static_cast<std::byte*>(staging->data());
    auto* const tokens = reinterpret_cast<DeviceToken*>(bytes);
    const std::vector<std::uint16_t> handlers = handlersOfFamily();
    tbb::parallel_for(std::size_t{0}, chunks_.size(),
                      [&](std::size_t c) { place(chunks_[c], starts[c], handlers, tokens); });
    auto* const words = reinterpret_cast<std::uint32_t*>(bytes + token_bytes);
    std::ranges::copy(map, std::ranges::copy(code.offsets, words).out);
    code.memory = DeviceBuffer(queue.uploads, token_bytes + offset_bytes + map_bytes);
    code.tokens = code.memory.address();
    code.program_offsets = code.tokens + token_bytes;
    code.column_map = code.program_offsets + offset_bytes;
    queue.uploads->complete(
        [&] { queue.uploads->copyToDevice(code.tokens, bytes, token_bytes + offset_bytes + map_bytes); });
  }

  const CodeRequest& request_;
  std::span<const SectionDraft> sections_;
  std::span<const EncodedChunk> chunks_;
  DeviceCode& code_;
};

}  // namespace

void linkPrograms(const CodeRequest& request, std::span<const SectionDraft> sections,
                  std::span<const EncodedChunk> chunks, DeviceCode& code) {
  ProgramLinker(request, sections, chunks, code).run();
}

}  // namespace srjit
