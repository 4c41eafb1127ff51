#include "compiler/sass/cubin.h"

#include <algorithm>
#include <bit>
#include <map>
#include <string>
#include <string_view>

#include <fmt/format.h>

namespace srjit::sass {
namespace {

std::string registerName(std::uint8_t number) { return number == kZero ? "RZ" : fmt::format("R{}", number); }

std::string predicateName(std::uint8_t predicate) {
  const char* const sign = (predicate & kNot) != 0 ? "!" : "";
  const unsigned number = predicate & 7U;
  return number == kTrue ? fmt::format("{}PT", sign) : fmt::format("{}P{}", sign, number);
}

std::string sourceName(const Instruction& i, std::size_t source) {
  std::string name = registerName(i.sources[source]);
  if ((i.magnitude >> source & 1) != 0) name = "|" + name + "|";
  return (i.negated >> source & 1) != 0 ? "-" + name : name;
}

std::string signedHex(std::uint32_t bits) {
  const auto value = static_cast<std::int32_t>(bits);
  return value < 0 ? fmt::format("-0x{:x}", 0U - bits) : fmt::format("0x{:x}", bits);
}

std::string floatText(std::uint32_t bits) {
  const auto value = std::bit_cast<float>(bits);
  if (value != value) return fmt::format("{}QNAN", (bits >> 31) != 0 ? "-" : "+");
  if (value - value != 0) return (bits >> 31) != 0 ? "-INF" : "+INF";
  return fmt::format("{}", value);
}

// The immediate of a double instruction is the upper half of a number whose lower half is 0.
std::string doubleText(std::uint32_t upper) {
  const auto value = std::bit_cast<double>(std::uint64_t{upper} << 32);
  if (value != value || value - value != 0) return floatText(std::bit_cast<std::uint32_t>(static_cast<float>(value)));
  return fmt::format("{}", value);
}

std::string address(const Instruction& i) {
  const std::string offset = i.immediate == 0 ? "" : "+" + signedHex(i.immediate);
  return fmt::format("desc[UR4][{}.64{}]", registerName(i.sources[0]), offset);
}

std::string bank(const Instruction& i) {
  if (i.sources[0] == kZero) return fmt::format("c[0x0][0x{:x}]", i.immediate);
  return fmt::format("c[0x0][{}+0x{:x}]", registerName(i.sources[0]), i.immediate);
}

/// How a form is written: columns of instructions.def, where their languages are described.
struct Text {
  std::string_view modifiers, operands;
};
constexpr Text kTexts[] = {
#define SRJIT_SASS(id, name, modifiers, operands, ...) {modifiers, operands},
#include "compiler/sass/instructions.def"
#undef SRJIT_SASS
};

constexpr std::string_view kOperandFields = "dabcpqfgihokrt";
constexpr std::size_t kNamesAt = 4;  // of "N@B:"

/// Takes what precedes the next `separator`, or all, from the beginning of `text`.
constexpr std::string_view take(std::string_view& text, char separator) {
  const std::size_t end = std::min(text.find(separator), text.size());
  const std::string_view taken = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return taken;
}

consteval bool isWellFormed(Text text) {
  while (!text.modifiers.empty()) {
    const std::string_view field = take(text.modifiers, ' ');
    const bool has_place = field.size() > kNamesAt && field[0] >= '1' && field[0] <= '8' && field[1] == '@' &&
                           field[2] >= '0' && field[2] <= '7' && field[3] == ':';
    if (!has_place) return false;
  }
  while (text.operands.find('%') != text.operands.npos) {
    text.operands.remove_prefix(text.operands.find('%') + 1);
    const bool is_optional = text.operands.starts_with('?');
    if (is_optional) text.operands.remove_prefix(1);
    if (text.operands.empty()) return false;
    const std::string_view known = is_optional ? "dp" : kOperandFields;
    if (known.find(text.operands[0]) == known.npos) return false;
  }
  return true;
}
#define SRJIT_SASS(id, name, modifiers, operands, ...) \
  static_assert(isWellFormed({modifiers, operands}), "the text of " #id " in instructions.def");
#include "compiler/sass/instructions.def"
#undef SRJIT_SASS

std::string modifierText(std::string_view fields, std::uint8_t modifier) {
  std::string text;
  while (!fields.empty()) {
    std::string_view names = take(fields, ' ');
    const auto width = static_cast<unsigned>(names[0] - '0'), first = static_cast<unsigned>(names[2] - '0');
    const unsigned number = modifier >> first & ((1U << width) - 1);
    names.remove_prefix(kNamesAt);
    const auto count = static_cast<unsigned>(std::ranges::count(names, '|')) + 1;
    for (unsigned skipped = 0; skipped < number && number < count; ++skipped) take(names, '|');
    const std::string name = number < count ? std::string(take(names, '|')) : fmt::format("{}", number);
    if (!name.empty()) text += '.' + name;
  }
  return text;
}

std::string operandText(const Instruction& i, char field, const std::string* target) {
  switch (field) {
    case 'd':
      return registerName(i.destination);
    case 'a':
    case 'b':
    case 'c':
      return sourceName(i, static_cast<std::size_t>(field - 'a'));
    case 'p':
      return predicateName(i.predicate);
    case 'q':
      return predicateName(i.condition);
    case 'f':
      return floatText(i.immediate);
    case 'g':
      return doubleText(i.immediate);
    case 'i':
      return signedHex(i.immediate);
    case 'h':
      return fmt::format("0x{:x}", i.immediate);
    case 'o':
      return address(i);
    case 'k':
      return bank(i);
    case 'r':
      return target != nullptr ? *target : signedHex(i.immediate);
    default:  // 't'; the table is checked above
      return fmt::format("0x{:x}", i.modifier);
  }
}

std::string operandsText(const Instruction& i, std::string_view operands, const std::string* target) {
  std::string text;
  while (!operands.empty()) {
    text += take(operands, '%');
    if (operands.empty()) break;
    const bool is_optional = operands[0] == '?';
    if (is_optional) operands.remove_prefix(1);
    const char field = operands[0];
    operands.remove_prefix(1);
    if (is_optional && (field == 'd' ? i.destination == kZero : i.predicate == kTrue)) continue;
    text += operandText(i, field, target);
    if (is_optional) text += ", ";
  }
  return text;
}

std::string body(const Instruction& i, const std::string* target) {
  const Text& form = kTexts[static_cast<std::size_t>(i.form)];
  std::string text(infoOf(i.form).name);
  text += modifierText(form.modifiers, i.modifier);
  if (!form.operands.empty()) text += ' ' + operandsText(i, form.operands, target);
  return text;
}

/// Where the branch at `index` goes, as an instruction; nothing if it is none or leaves the code.
std::optional<std::size_t> targetOf(const std::optional<Instruction>& i, std::size_t index, std::size_t size) {
  if (!i || i->form != Form::kBra) return std::nullopt;
  const std::int64_t to = static_cast<std::int64_t>(index) + 1 +
                          static_cast<std::int32_t>(i->immediate) / static_cast<std::int64_t>(sizeof(Word));
  if (to < 0 || to >= static_cast<std::int64_t>(size)) return std::nullopt;
  return static_cast<std::size_t>(to);
}

std::map<std::size_t, std::string> labelsOf(std::span<const std::optional<Instruction>> code,
                                            std::span<const std::uint32_t> indirect_targets) {
  std::map<std::size_t, std::string> labels;
  for (std::size_t t = 0; t < indirect_targets.size(); ++t) {
    labels.emplace(indirect_targets[t], fmt::format(".T{}", t));
  }
  std::map<std::size_t, bool> targets;
  for (std::size_t i = 0; i < code.size(); ++i) {
    if (const auto to = targetOf(code[i], i, code.size())) targets.emplace(*to, true);
  }
  std::size_t number = 0;
  for (const auto& [to, is_target] : targets) labels.emplace(to, fmt::format(".L{}", number++));
  return labels;
}

}  // namespace

std::string print(const Instruction& instruction, bool with_control, const std::string* target) {
  std::string text = instruction.guard == kTrue ? "" : "@" + predicateName(instruction.guard) + " ";
  text += body(instruction, target);
  if (!with_control) return text;
  const Control& control = instruction.control;
  std::string waits;
  for (unsigned barrier = 0; barrier < 6; ++barrier) {
    if ((control.wait_mask >> barrier & 1) != 0) waits += static_cast<char>('0' + barrier);
  }
  const auto barrier = [](std::uint8_t number) { return number == kNoBarrier ? '-' : static_cast<char>('0' + number); };
  return fmt::format("{:<52} ; wait {:<6} write {} read {} {} stall {}", text, waits.empty() ? "-" : waits,
                     barrier(control.write_barrier), barrier(control.read_barrier), control.yield ? "Y" : "-",
                     control.stall);
}

std::vector<std::optional<Instruction>> decodeAll(std::span<const Word> words, unsigned architecture) {
  std::vector<std::optional<Instruction>> code;
  code.reserve(words.size());
  for (const Word& word : words) code.push_back(decode(word, architecture));
  return code;
}

std::string listing(const CubinKernel& kernel, unsigned architecture, std::span<const std::uint32_t> indirect_targets,
                    bool with_control) {
  const auto code = decodeAll(kernel.code, architecture);
  const auto labels = labelsOf(code, indirect_targets);
  std::size_t parameters = 0;
  for (const std::uint16_t bytes : kernel.parameter_bytes) parameters += bytes;
  std::string text =
      fmt::format("{}: sm_{}, {} registers, {} bytes of parameters at c[0x0][0x{:x}], {} instructions\n", kernel.name,
                  architecture, kernel.registers, parameters, kernel.parameter_base, code.size());
  for (std::size_t i = 0; i < code.size(); ++i) {
    if (const auto label = labels.find(i); label != labels.end()) text += label->second + ":\n";
    text += fmt::format("  0x{:04x}  ", i * sizeof(Word));
    if (!code[i]) {
      text += fmt::format("0x{:016x} 0x{:016x}", kernel.code[i].low, kernel.code[i].high);
    } else {
      const auto to = targetOf(code[i], i, code.size());
      text += print(*code[i], with_control, to ? &labels.at(*to) : nullptr);
    }
    text += '\n';
  }
  return text;
}

Result<std::string> listing(std::span<const std::byte> image, bool with_control) {
  const auto contents = readCubin(image);
  if (!contents) return contents.error();
  std::string text;
  for (const CubinKernel& kernel : contents->kernels) text += listing(kernel, contents->architecture, {}, with_control);
  return text;
}

}  // namespace srjit::sass
