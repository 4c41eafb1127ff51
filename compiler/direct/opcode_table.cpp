#include <algorithm>
#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "compiler/direct/allocate.h"
#include "compiler/target/architecture.h"

namespace srjit::direct {
namespace {

using sass::Pipe;
using sass::Timing;

/// The instructions of a row of pairs.def: one or two.
struct OpcodePair {
  sass::Form lower;
  std::optional<sass::Form> upper;
  unsigned half = 0;  ///< of a pair that one instruction reads
};
constexpr OpcodePair kOpcodePairs[] = {
#define SRJIT_PAIR(id, lower, upper, ...) {sass::Form::k##lower, sass::Form::k##upper},
#define SRJIT_HALF(id, form, half) {sass::Form::k##form, {}, half},
#include "compiler/direct/pairs.def"
#undef SRJIT_PAIR
#undef SRJIT_HALF
};

constexpr auto kInstructions = [] {
  std::array<sass::Form, sass::kForms> all{};
  for (std::size_t f = 0; f < all.size(); ++f) all[f] = static_cast<sass::Form>(f);
  return all;
}();

// Whether every later instruction needs the same delays after either, as writers of a register or predicate.
bool areAlikeAsFirst(sass::Form a, sass::Form b) {
  return std::ranges::all_of(kInstructions, [&](sass::Form second) {
    if (sass::registerDelay(a, second) != sass::registerDelay(b, second)) return false;
    for (const bool guarded : {false, true}) {
      if (sass::overwriteDelay(a, second, guarded) != sass::overwriteDelay(b, second, guarded)) return false;
      if (sass::predicateDelay(a, second, guarded) != sass::predicateDelay(b, second, guarded)) return false;
    }
    return true;
  });
}

/// Kinds of forms, each with its first form, and that of every form.
struct FormKinds {
  std::vector<sass::Form> representatives;
  std::array<std::uint8_t, kInstructions.size()> kinds{};

  FormKinds() {
    for (const sass::Form form : kInstructions) {
      const auto isLike = [&](sass::Form other) { return areAlikeAsFirst(form, other); };
      const auto like = std::ranges::find_if(representatives, isLike);
      kinds.at(static_cast<std::size_t>(form)) = static_cast<std::uint8_t>(like - representatives.begin());
      if (like == representatives.end()) representatives.push_back(form);
    }
  }
};

OpcodeRow rowOf(sass::Form form, const FormKinds& kinds, unsigned architecture) {
  const auto byte = [](unsigned number) { return static_cast<std::uint8_t>(number); };
  OpcodeRow row{};
  row.facts = factsOf(opcodeOf(form));
  row.facts.timing = sass::timingOf(form, architecture);
  row.encoding = sass::encodingOf(form);
  for (std::size_t kind = 0; kind < kinds.representatives.size(); ++kind) {
    const sass::Form first = kinds.representatives[kind];
    row.value.at(kind) = byte(sass::registerDelay(first, form));
    row.overwrite.at(kind) = byte(sass::overwriteDelay(first, form, false));
    row.guarded_overwrite.at(kind) = byte(sass::overwriteDelay(first, form, true));
    row.condition.at(kind) = byte(sass::predicateDelay(first, form, false, architecture));
    row.guard.at(kind) = byte(sass::predicateDelay(first, form, true, architecture));
  }
  row.kind = kinds.kinds.at(static_cast<std::size_t>(form));
  const bool is_double = row.facts.pipe == Pipe::kDouble, is_fixed = row.facts.timing == Timing::kFixed;
  row.read_delay = byte(is_fixed || is_double ? 0 : sass::kReadDelay);
  for (const sass::Form reader : kInstructions) {
    row.settling = std::max(row.settling, byte(sass::registerDelay(form, reader)));
    for (const bool as_guard : {false, true}) {  // the longer of the two
      row.truth_settling =
          std::max(row.truth_settling, byte(sass::predicateDelay(form, reader, as_guard, architecture)));
    }
  }
  row.is_rare = row.facts.pipe == Pipe::kControl ? 1 : 0;
  return row;
}

// Of two instructions: the delays suffice for both. The upper one is issued a cycle later.
OpcodeRow rowOf(const OpcodePair& pair, const FormKinds& kinds, unsigned architecture) {
  OpcodeRow row = rowOf(pair.lower, kinds, architecture);
  row.is_rare = 1;
  row.half = static_cast<std::uint8_t>(pair.half);
  if (!pair.upper) return row;
  row.upper = &sass::encodingOf(*pair.upper);
  const OpcodeRow upper = rowOf(*pair.upper, kinds, architecture);
  const auto extend = [](OpcodeRow::Delays& delays, const OpcodeRow::Delays& others) {
    std::ranges::transform(delays, others, delays.begin(), [](std::uint8_t of_lower, std::uint8_t of_upper) {
      return std::max(of_lower, static_cast<std::uint8_t>(of_upper - std::min<int>(of_upper, 1)));
    });
  };
  extend(row.value, upper.value);
  extend(row.overwrite, upper.overwrite);
  extend(row.guarded_overwrite, upper.guarded_overwrite);
  extend(row.condition, upper.condition);
  extend(row.guard, upper.guard);
  row.read_delay = std::max(row.read_delay, upper.read_delay);
  row.settling = std::max(row.settling, upper.settling);
  return row;
}

OpcodeTable tableFor(const FormKinds& kinds, unsigned architecture) {
  OpcodeTable table{};
  const auto last = std::ranges::transform(kInstructions, table.begin(), [&](sass::Form form) {
                      return rowOf(form, kinds, architecture);
                    }).out;
  std::ranges::transform(kOpcodePairs, last, [&](const OpcodePair& pair) { return rowOf(pair, kinds, architecture); });
  for (std::size_t f = 0; f < table.size(); ++f) {
    const OpcodeFacts& facts = kOpcodeFacts[f];
    table[f].facts.results = facts.results;
    table[f].facts.sources = facts.sources;
    for (std::size_t i = 0; i < 3; ++i) {
      table[f].source_masks[i] = static_cast<std::uint8_t>((1U << facts.sources[i]) - 1);
      if (table[f].upper != nullptr && facts.sources[i] == 1) table[f].keeps_sources = 1;
    }
  }
  return table;
}

}  // namespace

const OpcodeTable& opcodeTableOf(unsigned architecture) {
  static const std::vector<std::pair<unsigned, OpcodeTable>> kTables = [] {
    std::vector<std::pair<unsigned, OpcodeTable>> tables;
    const FormKinds kinds;
    for (const unsigned each : directArchitectures()) tables.emplace_back(each, tableFor(kinds, each));
    return tables;
  }();
  return std::ranges::find(kTables, architecture, &std::pair<unsigned, OpcodeTable>::first)->second;
}

}  // namespace srjit::direct
