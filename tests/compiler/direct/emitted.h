// Code of an image as the verifier of hazards reads it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "compiler/direct/emitter.h"
#include "compiler/direct/registers.h"
#include "compiler/sass/cubin.h"
#include "tests/sass_verifier/hazards.h"

namespace srjit {

/// Whether it is the first instruction of a call, a MOV of the return address. A branch follows, to where it returns
/// the instruction after that.
inline bool isCall(const sass::Instruction& i) {
  return i.form == sass::Form::kMovI && i.destination == direct::fixed::kReturn;
}

struct Emitted {
  std::vector<std::optional<sass::Instruction>> code;
  std::vector<std::uint32_t> targets;  ///< of indirect branches: groups, and where calls return
  std::size_t calls = 0;
  unsigned registers = 0, architecture = 0;

  Emitted(const DirectImage& image, unsigned architecture)
      : code(sass::decodeAll(image.words, architecture)),
        registers(image.registers - sass::kHiddenRegisters),
        architecture(architecture) {
    for (const DirectGroup& group : image.groups) targets.push_back(group.code / sizeof(sass::Word));
    for (std::uint32_t at = 0; at < code.size(); ++at) {
      if (!code[at] || !isCall(*code[at])) continue;
      targets.push_back(at + 2);
      ++calls;
    }
  }

  std::vector<sass::Violation> hazards(std::size_t limit = 5) const {
    return sass::findHazards({code, architecture, registers, targets, false}, limit);
  }
  std::string text(const std::vector<sass::Violation>& found) const {
    std::string all;
    for (const auto& [instruction, rule] : found) {
      all += fmt::format("{}: {}\n  {}\n", instruction, rule, sass::print(*code[instruction], true));
    }
    return all;
  }
};

}  // namespace srjit
