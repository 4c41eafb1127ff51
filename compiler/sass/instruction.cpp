#include "compiler/sass/instruction.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "compiler/sass/encode.h"
#include "compiler/target/architecture.h"

namespace srjit::sass {
namespace {

// Generations as bits, by their names.
#define SRJIT_GENERATION(id, ...) constexpr unsigned id = 1U << static_cast<unsigned>(IsaGeneration::id);
#include "compiler/target/architectures.def"
constexpr unsigned kEvery = 0
#define SRJIT_GENERATION(id, ...) | id
#include "compiler/target/architectures.def"
    ;

unsigned generationOf(unsigned architecture) noexcept {
  return 1U << static_cast<unsigned>(architectureOf(architecture).generation);
}

constexpr std::uint8_t kAbsent = 255;

/// Part of the modifier at a place in the word.
struct ModifierField {
  std::uint8_t first = 0, width = 0, position = 0;
  bool inverted = false;
};

using Modifier = std::array<ModifierField, 3>;

/// Where signs and magnitudes of sources stand.
struct Signs {
  std::array<std::uint8_t, 3> negated = {kAbsent, kAbsent, kAbsent};
  std::array<std::uint8_t, 3> magnitude = {kAbsent, kAbsent, kAbsent};
};

/// Where the fields of a form stand: the column `slots` of instructions.def, parsed.
struct Layout {
  Word fixed;
  std::uint8_t destination = kAbsent;
  std::array<std::uint8_t, 3> sources = {kAbsent, kAbsent, kAbsent};
  Signs signs;
  std::uint8_t immediate = kAbsent, immediate_bits = 0;
  std::uint8_t predicate = kAbsent, condition = kAbsent;
  bool branch = false;
  Modifier modifier = {};
  std::uint8_t modifier_fields = 0;
};

constexpr std::uint8_t kOffsetBits = 24;

// Of the slots that hold a number of the instruction itself; 0 for others.
consteval std::uint8_t immediateBitsOf(char slot) {
  switch (slot) {
    case 'i':  // a number
      return 32;
    case 'o':  // an offset of an address
      return kOffsetBits;
    case 'k':  // an offset in a constant bank
      return 16;
    case 's':  // a lane
      return 5;
    default:
      return 0;
  }
}

consteval Layout layoutOf(std::uint64_t low, std::uint64_t high, std::string_view slots) {
  Layout layout;
  layout.fixed = {low, high};
  std::uint8_t modifier_bit = 0;
  const auto number = [&](std::size_t& at) {
    unsigned value = 0;
    for (; at < slots.size() && slots[at] >= '0' && slots[at] <= '9'; ++at) {
      value = value * 10 + static_cast<unsigned>(slots[at] - '0');
    }
    return static_cast<std::uint8_t>(value);
  };
  for (std::size_t at = 0; at < slots.size();) {
    const char kind = slots[at++];
    if (kind == ' ') continue;
    if (kind == '-' || kind == '|') {
      const auto source = static_cast<std::size_t>(slots[at++] - 'a');
      (kind == '-' ? layout.signs.negated : layout.signs.magnitude)[source] = number(at);
      continue;
    }
    const std::uint8_t first = number(at);
    if (const std::uint8_t bits = immediateBitsOf(kind); bits != 0) {
      layout.immediate = first, layout.immediate_bits = bits;
      continue;
    }
    switch (kind) {
      case 'd':
        layout.destination = first;
        break;
      case 'a':
      case 'b':
      case 'c':
        layout.sources[static_cast<std::size_t>(kind - 'a')] = first;
        break;
      case 'r':
        layout.branch = true;
        break;
      case 'p':
        layout.predicate = first;
        break;
      case 'q':
        layout.condition = first;
        break;
      case 'x':
        modifier_bit = static_cast<std::uint8_t>(modifier_bit + first);
        break;
      case 'm':
      case 'n': {
        ++at;  // the '@'
        layout.modifier[layout.modifier_fields++] = {modifier_bit, first, number(at), kind == 'n'};
        modifier_bit = static_cast<std::uint8_t>(modifier_bit + first);
        break;
      }
      default:
        throw "a slot of instructions.def has an unknown letter";
    }
  }
  return layout;
}

struct Row {
  FormInfo info;
  Layout layout;
  unsigned generations;
};

#define SRJIT_WIDTHS(a, b, c) {a, b, c}
constexpr Row kRows[] = {
#define SRJIT_SASS(id, name, modifiers, operands, low, high, slots, pipe, timing, latency, results, widths, \
                   generations, source)                                                                     \
  {{name, Pipe::pipe, Timing::timing, latency, results, SRJIT_WIDTHS widths,                                \
    layoutOf(low, high, slots).predicate != kAbsent, layoutOf(low, high, slots).condition != kAbsent},      \
   layoutOf(low, high, slots),                                                                              \
   generations},
#include "compiler/sass/instructions.def"
#undef SRJIT_SASS
};
#undef SRJIT_WIDTHS

constexpr const Row& rowOf(Form form) noexcept { return kRows[static_cast<std::size_t>(form)]; }

constexpr void put(Word& word, std::uint8_t position, std::uint8_t bits, std::uint64_t value) noexcept {
  const std::uint64_t field = value & ((std::uint64_t{1} << bits) - 1);
  if (position >= 64) {
    word.high |= field << (position - 64);
  } else {
    word.low |= field << position;
    if (position + bits > 64) word.high |= field >> (64 - position);
  }
}

constexpr std::uint64_t get(const Word& word, std::uint8_t position, std::uint8_t bits) noexcept {
  std::uint64_t value = position >= 64 ? word.high >> (position - 64) : word.low >> position;
  if (position < 64 && position + bits > 64) value |= word.high << (64 - position);
  return value & ((std::uint64_t{1} << bits) - 1);
}

constexpr std::uint8_t kRegisterBits = 8, kPredicateBits = 3, kConditionBits = 4;
// Branches: bytes from the next instruction. In one field, or split: in units of 4 bytes, in two fields.
constexpr std::uint8_t kBranchAt = 32, kBranchBits = 50;
constexpr std::uint8_t kBranchLowAt = 16, kBranchLowBits = 8, kBranchHighAt = 34, kBranchHighBits = 48;

std::uint32_t getBranch(const Word& word, unsigned architecture) noexcept {
  if (!architectureOf(architecture).has_split_branches)
    return static_cast<std::uint32_t>(get(word, kBranchAt, kBranchBits));
  return static_cast<std::uint32_t>(
      (get(word, kBranchLowAt, kBranchLowBits) | get(word, kBranchHighAt, kBranchHighBits) << kBranchLowBits) << 2);
}

constexpr Control getControl(const Word& word) noexcept {
  Control control;
  control.stall = static_cast<std::uint8_t>(get(word, kStallAt, 4));
  control.yield = get(word, kYieldAt, 1) != 0;
  control.write_barrier = static_cast<std::uint8_t>(get(word, kWriteBarrierAt, 3));
  control.read_barrier = static_cast<std::uint8_t>(get(word, kReadBarrierAt, 3));
  control.wait_mask = static_cast<std::uint8_t>(get(word, kWaitAt, 6));
  control.reuse = static_cast<std::uint8_t>(get(word, kReuseAt, 4));
  return control;
}

// The bits of every sign and magnitude, and of every modifier, for forms that have them at the same places.
template <Signs kSigns>
constexpr auto kSignBits = [] {
  std::array<Word, kSignSets> words;
  for (std::size_t set = 0; set < kSignSets; ++set) {
    for (std::size_t s = 0; s < 3; ++s) {
      if (kSigns.negated[s] != kAbsent) put(words[set], kSigns.negated[s], 1, set >> s);
      if (kSigns.magnitude[s] != kAbsent) put(words[set], kSigns.magnitude[s], 1, set >> (kMagnitudeAt + s));
    }
  }
  return words;
}();
template <Modifier kModifier>
constexpr auto kModifierBits = [] {
  std::array<std::uint64_t, kModifiers> bits{};
  for (std::size_t modifier = 0; modifier < kModifiers; ++modifier) {
    Word word;
    for (const ModifierField& field : kModifier) {
      if (field.width != 0)
        put(word, field.position, field.width, (field.inverted ? ~modifier : modifier) >> field.first);
    }
    bits[modifier] = word.high;
  }
  return bits;
}();

constexpr std::uint64_t factorIn(unsigned half, std::uint8_t position) noexcept {
  return position != kAbsent && position / 64U == half ? std::uint64_t{1} << position % 64 : 0;
}

template <std::size_t kForm>
constexpr Encoding encodingOfForm() noexcept {
  constexpr Layout kLayout = kRows[kForm].layout;
  const auto low = [](std::uint8_t position) { return factorIn(0, position); };
  const auto high = [](std::uint8_t position) { return factorIn(1, position); };
  const auto& [a, b, c] = kLayout.sources;
  Word blank = kLayout.fixed;
  put(blank, kGuardAt, kConditionBits, kTrue);
  for (const std::uint8_t at : {kLayout.destination, a, b, c}) {
    if (at != kAbsent) put(blank, at, kRegisterBits, kZero);
  }
  for (const std::uint8_t at : {kLayout.predicate, kLayout.condition}) {
    if (at != kAbsent) put(blank, at, kPredicateBits, kTrue);
  }
  return {.blank = blank,
          .sources_low = {low(a), low(b), low(c)},
          .sources_high = {high(a), high(b), high(c)},
          .immediate_low = low(kLayout.immediate),
          .immediate_mask = static_cast<std::uint32_t>((std::uint64_t{1} << kLayout.immediate_bits) - 1),
          .destination_low = static_cast<std::uint32_t>(low(kLayout.destination)),
          .predicate_high = static_cast<std::uint32_t>(high(kLayout.predicate)),
          .condition_high = static_cast<std::uint32_t>(high(kLayout.condition)),
          .signs = kSignBits<kLayout.signs>.data(),
          .modifiers = kModifierBits<kLayout.modifier>.data()};
}

// What the bits are if they are of this form; encoding it again shows whether they are.
Instruction read(Form form, const Word& word, unsigned architecture) noexcept {
  const Layout& layout = rowOf(form).layout;
  Instruction i;
  i.form = form;
  i.guard = static_cast<std::uint8_t>(get(word, kGuardAt, kConditionBits));
  i.control = getControl(word);
  if (layout.destination != kAbsent) {
    i.destination = static_cast<std::uint8_t>(get(word, layout.destination, kRegisterBits));
  }
  for (std::size_t s = 0; s < 3; ++s) {
    if (layout.sources[s] != kAbsent) {
      i.sources[s] = static_cast<std::uint8_t>(get(word, layout.sources[s], kRegisterBits));
    }
    if (layout.signs.negated[s] != kAbsent)
      i.negated |= static_cast<std::uint8_t>(get(word, layout.signs.negated[s], 1) << s);
    if (layout.signs.magnitude[s] != kAbsent) {
      i.magnitude |= static_cast<std::uint8_t>(get(word, layout.signs.magnitude[s], 1) << s);
    }
  }
  for (const ModifierField& field : layout.modifier) {
    if (field.width == 0) continue;
    const std::uint64_t mask = (1U << field.width) - 1;
    const std::uint64_t bits = get(word, field.position, field.width) ^ (field.inverted ? mask : 0);
    i.modifier |= static_cast<std::uint8_t>(bits << field.first);
  }
  if (layout.immediate_bits != 0) {
    i.immediate = static_cast<std::uint32_t>(get(word, layout.immediate, layout.immediate_bits));
    if (layout.immediate_bits == kOffsetBits) {
      i.immediate = static_cast<std::uint32_t>(static_cast<std::int32_t>(i.immediate << 8) >> 8);
    }
  }
  if (layout.predicate != kAbsent) i.predicate = static_cast<std::uint8_t>(get(word, layout.predicate, kPredicateBits));
  if (layout.condition != kAbsent) i.condition = static_cast<std::uint8_t>(get(word, layout.condition, kConditionBits));
  if (layout.branch) i.immediate = getBranch(word, architecture);
  return i;
}

constexpr unsigned kOpcodeMask = 0xfff;

// Forms by their twelve opcode bits.
const std::vector<std::vector<Form>>& formsByOpcode() {
  static const std::vector<std::vector<Form>> table = [] {
    std::vector<std::vector<Form>> forms(kOpcodeMask + 1);
    for (std::size_t f = 0; f < kForms; ++f) {
      forms[kRows[f].layout.fixed.low & kOpcodeMask].push_back(static_cast<Form>(f));
    }
    return forms;
  }();
  return table;
}

bool isWide(Form form) noexcept { return form == Form::kImadWideURRR || form == Form::kImadWideURIR; }
bool isDouble(Form form) noexcept { return infoOf(form).pipe == Pipe::kDouble; }

}  // namespace

const FormInfo& infoOf(Form form) noexcept { return rowOf(form).info; }

bool isAvailable(Form form, unsigned architecture) noexcept {
  return (rowOf(form).generations & generationOf(architecture)) != 0;
}

Timing timingOf(Form form, unsigned architecture) noexcept {
  // Of an architecture without a row the longer waits are assumed.
  const Architecture& row = architectureOf(architecture);
  const bool is_fixed = infoOf(form).pipe == Pipe::kDouble && row.has_fixed_doubles && row.number == architecture;
  return is_fixed ? Timing::kFixed : infoOf(form).timing;
}

unsigned registerDelay(Form writer, Form reader) noexcept {
  // Rounding a double to an integer reads its source as a double instruction does, and later.
  const bool rounds_double = reader == Form::kFRndDouble;
  const Pipe to = infoOf(reader).pipe;
  if (isDouble(writer)) {
    return to == Pipe::kDouble ? 8 : to == Pipe::kSpecial && !rounds_double ? 6 : to == Pipe::kMemory ? 7 : 10;
  }
  if (to == Pipe::kDouble || rounds_double) return 6;
  if (isWide(writer) && isWide(reader)) return 6;
  if (to == Pipe::kSpecial || to == Pipe::kControl) return 4;
  if (to == Pipe::kAlu || to == Pipe::kFma) return to == infoOf(writer).pipe ? 4 : 5;
  return 5;
}

unsigned predicateDelay(Form writer, Form reader, bool as_guard, unsigned architecture) noexcept {
  // A vote reads its condition where others read their guards.
  if (as_guard || reader == Form::kVoteAll || reader == Form::kVoteAny) return isDouble(writer) ? 14 : 13;
  if (isDouble(writer)) return 6;
  if (isDouble(reader)) return 13;
  if (infoOf(reader).pipe != Pipe::kAlu) return 5;
  if (architecture != 0) return architectureOf(architecture).predicate_delay;
  return std::ranges::max(allArchitectures(), {}, &Architecture::predicate_delay).predicate_delay;
}

unsigned overwriteDelay(Form first, Form second, bool second_guarded) noexcept {
  const unsigned guarded = second_guarded ? 1 : 0;
  if (isDouble(second)) return infoOf(second).writes_predicate ? 5 + 2 * guarded : 2;
  if (infoOf(second).timing == Timing::kVariable) {
    return infoOf(second).writes_predicate ? 10 + 2 * guarded : 6;
  }
  if (isDouble(first)) return infoOf(second).writes_predicate ? 10 : 6;
  if (!isWide(second) || isWide(first)) return 1;
  return infoOf(first).pipe == Pipe::kFma ? 1 + guarded : 2 + guarded;
}

Form descriptorLoadOf(unsigned architecture) noexcept {
  return isAvailable(Form::kUldcDescriptor, architecture) ? Form::kUldcDescriptor : Form::kLdcuDescriptor;
}

constinit const std::array<Encoding, kForms> kEncodings = []<std::size_t... kForm>(std::index_sequence<kForm...>) {
  return std::array{encodingOfForm<kForm>()...};
}(std::make_index_sequence<kForms>());

void putBranchOffset(Word& word, std::uint32_t offset, unsigned architecture) noexcept {
  const auto wide = static_cast<std::uint64_t>(static_cast<std::int64_t>(static_cast<std::int32_t>(offset)));
  if (architectureOf(architecture).has_split_branches) {
    const auto words = static_cast<std::uint64_t>(static_cast<std::int64_t>(wide) >> 2);
    put(word, kBranchLowAt, kBranchLowBits, words);
    put(word, kBranchHighAt, kBranchHighBits, words >> kBranchLowBits);
  } else {
    put(word, kBranchAt, kBranchBits, wide);
  }
}

Word encode(const Instruction& i, unsigned architecture) noexcept {
  const Encoding& encoding = encodingOf(i.form);
  constexpr unsigned kSources = (1U << kMagnitudeAt) - 1;  // a bit for each
  Word word = encoding.begin(i.negated & kSources, i.magnitude & kSources, i.modifier, i.immediate);
  putGuard(word, i.guard);
  encoding.putDestination(word, i.destination);
  for (std::size_t s = 0; s < i.sources.size(); ++s) encoding.putSource(word, s, i.sources[s]);
  encoding.putPredicate(word, i.predicate);
  encoding.putCondition(word, i.condition);
  if (rowOf(i.form).layout.branch) putBranchOffset(word, i.immediate, architecture);
  word.high |= bitsOf(i.control);
  return word;
}

std::optional<Instruction> decode(const Word& word, unsigned architecture) noexcept {
  const unsigned generation = generationOf(architecture);
  for (const Form form : formsByOpcode()[word.low & kOpcodeMask]) {
    if ((rowOf(form).generations & generation) == 0) continue;
    const Instruction instruction = read(form, word, architecture);
    if (encode(instruction, architecture) == word) return instruction;
  }
  return std::nullopt;
}

}  // namespace srjit::sass
