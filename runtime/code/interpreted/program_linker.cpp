#include "runtime/code/interpreted/program_linker.h"

#include <algorithm>
#include <memory>
#include <stdexcept>

#include <tbb/parallel_for.h>

#include "compiler/interpreter/encoder.h"
#include "compiler/interpreter/handler_table.h"

namespace srjit {
namespace {

// A launch takes some microseconds, so programs of many slots are launched apart only where there are many programs.
constexpr std::size_t kLeastToDivide = 1024;

/// Of one call of linkPrograms().
class ProgramLinker {
 public:
  ProgramLinker(const CodeRequest& request, std::span<const SectionDraft> sections,
                std::span<const EncodedChunk> chunks, DeviceEncoding* on_device, DeviceCode& code)
      : request_(request), sections_(sections), chunks_(chunks), on_device_(on_device), code_(code) {}

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
    if (on_device_ != nullptr) addDeviceSection(next);
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
    const std::vector<std::uint16_t> handlers = handlersOfFamily();
    if (on_device_ != nullptr) {
      const CurrentContext current(*request_.queue.cuda);
      on_device_->putOffsets(code.offsets);
      on_device_->link(handlers, sections_[0].staged_as, sections_[0].stagedColumns(), code.tokens, code_.parameters,
                       parameters, patches);
      for (Starts& start : starts) {
        start.parameter += on_device_->parameters();
        start.patch += on_device_->patches();
      }
    } else {
      code_.parameters.resize(parameters, patches);
    }
    upload(starts, map, handlers);
  }

 private:
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
    const std::uint32_t bound = fewSlots(request_.source.precision);
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

  // Writes a chunk to its place: tokens to `tokens`, which begin with number `first_token`, the rest to the code.
  void place(const EncodedChunk& chunk, const Starts& at, std::span<const std::uint16_t> handlers, DeviceToken* tokens,
             std::size_t first_token) {
    const SectionDraft& section = sections_[chunk.section];
    const TokenLinks links{handlers, section.staged_as, section.stagedColumns(), kFirstSlot};
    const auto first_parameter = static_cast<std::uint32_t>(at.parameter);
    code_.parameters.put(at.parameter, at.patch, chunk.parameters);
    std::uint32_t* const offsets = code_.interpreter->offsets.data();
    Starts::Programs few = at.few, many = at.many;
    const DeviceToken* from = chunk.code.tokens.data();
    for (std::size_t p = 0; p < chunk.lengths.size(); ++p) {
      Starts::Programs& own = chunk.slots[p] > at.bound ? many : few;
      const std::uint32_t length = chunk.lengths[p];
      offsets[own.program++] = static_cast<std::uint32_t>(own.token);
      std::transform(from, from + length, tokens + (own.token - first_token),
                     [&](DeviceToken token) { return links.linked(token, first_parameter); });
      own.token += length;
      from += length;
    }
  }

  void addDeviceSection(Starts::Programs& next) {
    next = {on_device_->programs(), on_device_->tokens()};
    if (next.program == 0) return;
    code_.interpreter->sections.push_back({.first_program = 0,
                                           .programs = static_cast<std::uint32_t>(next.program),
                                           .map_offset = 0,
                                           .staged_columns = sections_[0].stagedColumns(),
                                           .slots = on_device_->slots()});
  }

  // Tokens, offsets and the map, in one block.
  void takeMemory(const std::vector<std::uint32_t>& map) {
    InterpreterCode& code = *code_.interpreter;
    const std::size_t token_bytes = code.offsets.back() * sizeof(DeviceToken);
    const std::size_t offset_bytes = code.offsets.size() * sizeof(std::uint32_t);
    const CurrentContext current(*request_.queue.cuda);
    code.memory = DeviceBuffer(request_.queue.uploads, token_bytes + offset_bytes + map.size() * sizeof(std::uint32_t));
    code.tokens = code.memory.address();
    code.program_offsets = code.tokens + token_bytes;
    code.column_map = code.program_offsets + offset_bytes;
  }

  // Programs that are on the device are not copied.
  void upload(const std::vector<Starts>& starts, const std::vector<std::uint32_t>& map,
              std::span<const std::uint16_t> handlers) {
    InterpreterCode& code = *code_.interpreter;
    const std::size_t first_token = on_device_ == nullptr ? 0 : on_device_->tokens();
    const std::size_t token_bytes = (code.offsets.back() - first_token) * sizeof(DeviceToken);
    const DeviceQueue& queue = request_.queue;
    const CurrentContext current(*queue.cuda);
    const std::size_t bytes = token_bytes + (code.offsets.size() + map.size()) * sizeof(std::uint32_t);
    const std::shared_ptr<PinnedBuffer> staging = queue.pinned.take(bytes);
    auto* const tokens = static_cast<DeviceToken*>(staging->data());
    tbb::parallel_for(std::size_t{0}, chunks_.size(),
                      [&](std::size_t c) { place(chunks_[c], starts[c], handlers, tokens, first_token); });
    auto* const words = reinterpret_cast<std::uint32_t*>(tokens + token_bytes / sizeof(DeviceToken));
    std::ranges::copy(map, std::ranges::copy(code.offsets, words).out);
    queue.uploads->complete(
        [&] { queue.uploads->copyToDevice(code.tokens + first_token * sizeof(DeviceToken), tokens, bytes); });
  }

  const CodeRequest& request_;
  std::span<const SectionDraft> sections_;
  std::span<const EncodedChunk> chunks_;
  DeviceEncoding* on_device_;
  DeviceCode& code_;
};

}  // namespace

void linkPrograms(const CodeRequest& request, std::span<const SectionDraft> sections,
                  std::span<const EncodedChunk> chunks, DeviceEncoding* on_device, DeviceCode& code) {
  ProgramLinker(request, sections, chunks, on_device, code).run();
}

}  // namespace srjit
