#include "compiler/sass/print.h"

#include <bit>
#include <string>

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

std::string arithmeticModifiers(const Instruction& i) {
  static constexpr const char* kRounding[] = {"", ".RM", ".RP", ".RZ"};
  return fmt::format("{}{}{}", (i.modifier & kFlush) != 0 ? ".FTZ" : "", kRounding[i.modifier & 3],
                     (i.modifier & kSaturate) != 0 ? ".SAT" : "");
}

std::string compareModifiers(const Instruction& i, bool integers) {
  static constexpr const char* kNames[] = {"F",   "LT",  "EQ",  "LE",  "GT",  "NE",  "GE",  "NUM",
                                           "NAN", "LTU", "EQU", "LEU", "GTU", "NEU", "GEU", "T"};
  static constexpr const char* kCombine[] = {"AND", "OR", "XOR", "?"};
  const char* const middle = integers                            ? (i.modifier & kSigned) != 0 ? "" : ".U32"
                             : (i.modifier & kFlushCompare) != 0 ? ".FTZ"
                                                                 : "";
  return fmt::format(".{}{}.{}", kNames[i.modifier & (integers ? 7 : 15)], middle, kCombine[i.modifier >> 4 & 3]);
}

std::string functionName(std::uint8_t function) {
  static constexpr const char* kNames[] = {"COS", "SIN",    "EX2",    "LG2",  "RCP",
                                           "RSQ", "RCP64H", "RSQ64H", "SQRT", "TANH"};
  return function < std::size(kNames) ? kNames[function] : fmt::format("{}", function);
}

std::string numberText(const Instruction& i) {
  return infoOf(i.form).pipe == Pipe::kDouble ? doubleText(i.immediate) : floatText(i.immediate);
}

// What stands where source b does: a register or the immediate.
std::string second(const Instruction& i, bool immediate, bool is_float = true) {
  if (!immediate) return sourceName(i, 1);
  return is_float ? numberText(i) : signedHex(i.immediate);
}

std::string body(const Instruction& i) {
  const std::string name(infoOf(i.form).name);
  const std::string d = registerName(i.destination);
  const auto a = [&] { return sourceName(i, 0); };
  const auto c = [&] { return sourceName(i, 2); };
  const std::string p = predicateName(i.predicate), q = predicateName(i.condition);
  switch (i.form) {
    case Form::kFAddRR:
    case Form::kFAddRI:
    case Form::kFMulRR:
    case Form::kFMulRI:
    case Form::kDAddRR:
    case Form::kDAddRI:
    case Form::kDMulRR:
    case Form::kDMulRI: {
      const bool immediate =
          i.form == Form::kFAddRI || i.form == Form::kFMulRI || i.form == Form::kDAddRI || i.form == Form::kDMulRI;
      return fmt::format("{}{} {}, {}, {}", name, arithmeticModifiers(i), d, a(), second(i, immediate));
    }
    case Form::kFFmaRRR:
    case Form::kFFmaRIR:
    case Form::kDFmaRRR:
    case Form::kDFmaRIR:
      return fmt::format("{}{} {}, {}, {}, {}", name, arithmeticModifiers(i), d, a(),
                         second(i, i.form == Form::kFFmaRIR || i.form == Form::kDFmaRIR), c());
    case Form::kFFmaRRI:
    case Form::kDFmaRRI:
      return fmt::format("{}{} {}, {}, {}, {}", name, arithmeticModifiers(i), d, a(), sourceName(i, 1), numberText(i));
    case Form::kFMnMxRR:
    case Form::kFMnMxRI:
      return fmt::format("{}{}{} {}, {}, {}, {}", name, (i.modifier & kFlush) != 0 ? ".FTZ" : "",
                         (i.modifier & kPropagate) != 0 ? ".NAN" : "", d, a(), second(i, i.form == Form::kFMnMxRI), q);
    case Form::kFSetPRR:
    case Form::kFSetPRI:
    case Form::kDSetPRR:
    case Form::kDSetPRI:
      return fmt::format("{}{} {}, PT, {}, {}, {}", name, compareModifiers(i, false), p, a(),
                         second(i, i.form == Form::kFSetPRI || i.form == Form::kDSetPRI), q);
    case Form::kISetPURR:
    case Form::kISetPURI:
      return fmt::format("{}{} {}, PT, {}, {}, {}", name, compareModifiers(i, true), p, a(),
                         second(i, i.form == Form::kISetPURI, false), q);
    case Form::kFSelRR:
    case Form::kFSelRI:
      return fmt::format("{} {}, {}, {}, {}", name, d, a(), second(i, i.form == Form::kFSelRI), q);
    case Form::kSelRR:
    case Form::kSelRI:
      return fmt::format("{} {}, {}, {}, {}", name, d, a(), second(i, i.form == Form::kSelRI, false), q);
    case Form::kMufuR:
      return fmt::format("{}.{} {}, {}", name, functionName(i.modifier), d, a());
    case Form::kFRndR:
    case Form::kFRndDouble: {
      static constexpr const char* kRounding[] = {"", ".FLOOR", ".CEIL", ".TRUNC"};
      return fmt::format("{}{}{} {}, {}", name, (i.modifier & kFlush) != 0 ? ".FTZ" : "", kRounding[i.modifier & 3], d,
                         a());
    }
    case Form::kFChkRR:
      return fmt::format("{} {}, {}, {}", name, p, a(), sourceName(i, 1));
    case Form::kMovR:
      return fmt::format("{} {}, {}", name, d, a());
    case Form::kMovI:
      return fmt::format("{} {}, 0x{:x}", name, d, i.immediate);
    case Form::kLop3RRR:
    case Form::kLop3RIR:
      return fmt::format("{} {}{}, {}, {}, {}, 0x{:x}, !PT", name, i.predicate == kTrue ? "" : p + ", ", d, a(),
                         i.form == Form::kLop3RIR ? fmt::format("0x{:x}", i.immediate) : sourceName(i, 1), c(),
                         i.modifier);
    case Form::kShlRI:
      return fmt::format("{} {}, {}, 0x{:x}, RZ", name, d, a(), i.immediate);
    case Form::kShrRI:
    case Form::kSarRI:
      return fmt::format("{} {}, RZ, 0x{:x}, {}", name, d, i.immediate, a());
    case Form::kIAdd3RRR:
    case Form::kIAdd3RIR:
    case Form::kImadRRR:
    case Form::kImadRIR:
    case Form::kImadWideURRR:
    case Form::kImadWideURIR: {
      const bool immediate = i.form == Form::kIAdd3RIR || i.form == Form::kImadRIR || i.form == Form::kImadWideURIR;
      return fmt::format("{} {}, {}, {}, {}", name, d, a(), second(i, immediate, false), c());
    }
    case Form::kImadRRI:
      return fmt::format("{} {}, {}, {}, {}", name, d, a(), sourceName(i, 1), signedHex(i.immediate));
    case Form::kLdg:
    case Form::kLdg64:
    case Form::kLdg128:
      return fmt::format("{}{} {}, {}", name, i.modifier == kCoherent ? "" : ".CONSTANT", d, address(i));
    case Form::kStg:
    case Form::kStg64:
      return fmt::format("{} {}, {}", name, address(i), sourceName(i, 1));
    case Form::kLdc:
    case Form::kLdc64:
      return fmt::format("{} {}, {}", name, d, bank(i));
    case Form::kShflBfly:
      return fmt::format("{} {}, {}, {}, 0x{:x}, 0x1f", name, p, d, a(), i.immediate);
    case Form::kVoteAll:
    case Form::kVoteAny:
      if (i.destination != kZero) return fmt::format("{} {}, {}, {}", name, d, p, q);
      return fmt::format("{} {}, {}", name, p, q);
    case Form::kS2rTid:
      return fmt::format("{} {}, SR_TID.X", name, d);
    case Form::kS2rCtaX:
      return fmt::format("{} {}, SR_CTAID.X", name, d);
    case Form::kS2rCtaY:
      return fmt::format("{} {}, SR_CTAID.Y", name, d);
    case Form::kS2rLane:
      return fmt::format("{} {}, SR_LANEID", name, d);
    case Form::kUldcDescriptor:
    case Form::kLdcuDescriptor:
      return fmt::format("{} UR4, {}", name, bank(i));
    case Form::kBra:
      return fmt::format("{} {}", name, signedHex(i.immediate));
    case Form::kBrx:
      return fmt::format("{} {} {}", name, a(), signedHex(i.immediate));
    case Form::kExit:
    case Form::kNop:
      return name;
  }
  return name;
}

}  // namespace

std::string print(const Instruction& instruction, bool with_control) {
  std::string text = instruction.guard == kTrue ? "" : "@" + predicateName(instruction.guard) + " ";
  text += body(instruction);
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

}  // namespace srjit::sass
