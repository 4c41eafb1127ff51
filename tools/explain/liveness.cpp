#include <bitset>

#include "tools/explain/stages.h"

namespace srjit::explain {
namespace {

using Registers = std::bitset<256>;

void addRange(Registers& set, std::uint8_t first, unsigned count) {
  if (first == sass::kZero) return;
  for (unsigned r = first; r < first + count && r < sass::kZero; ++r) set.set(r);
}

/// What one instruction does to registers, and what may follow it.
struct Effect {
  Registers reads, writes;
  bool always_writes = false;  ///< it is not guarded
  std::vector<std::size_t> next;
};

Effect effectOf(const sass::Instruction& i, std::size_t at, std::size_t size, std::span<const std::size_t> targets) {
  Effect effect;
  const sass::FormInfo& form = sass::infoOf(i.form);
  if (form.pipe != sass::Pipe::kUniform) addRange(effect.writes, i.destination, form.result_registers);
  for (std::size_t s = 0; s < i.sources.size(); ++s) addRange(effect.reads, i.sources[s], form.source_registers[s]);
  effect.always_writes = i.guard == sass::kTrue;
  const bool may_pass = i.guard != sass::kTrue;
  if (i.form == sass::Form::kBra) {
    const auto offset = static_cast<std::int32_t>(i.immediate) / static_cast<std::int32_t>(sizeof(sass::Word));
    const std::ptrdiff_t target = static_cast<std::ptrdiff_t>(at) + 1 + offset;
    if (target >= 0 && target < static_cast<std::ptrdiff_t>(size))
      effect.next.push_back(static_cast<std::size_t>(target));
    if (!may_pass) return effect;
  } else if (i.form == sass::Form::kBrx) {
    effect.next.assign(targets.begin(), targets.end());
    return effect;
  } else if (i.form == sass::Form::kExit && !may_pass) {
    return effect;
  }
  if (at + 1 < size) effect.next.push_back(at + 1);
  return effect;
}

}  // namespace

std::vector<unsigned> liveRegisters(std::span<const std::optional<sass::Instruction>> code,
                                    std::span<const std::size_t> targets) {
  std::vector<Effect> effects(code.size());
  for (std::size_t i = 0; i < code.size(); ++i) {
    if (code[i]) {
      effects[i] = effectOf(*code[i], i, code.size(), targets);
    } else if (i + 1 < code.size()) {
      effects[i].next.push_back(i + 1);
    }
  }
  std::vector<Registers> before(code.size()), after(code.size());
  for (bool changed = true; changed;) {
    changed = false;
    for (std::size_t i = code.size(); i-- > 0;) {
      Registers live;
      for (const std::size_t next : effects[i].next) live |= before[next];
      after[i] = live;
      if (effects[i].always_writes) live &= ~effects[i].writes;
      live |= effects[i].reads;
      changed |= live != before[i];
      before[i] = live;
    }
  }
  std::vector<unsigned> counts;
  for (std::size_t i = 0; i < code.size(); ++i) {
    counts.push_back(static_cast<unsigned>((before[i] | after[i] | effects[i].writes).count()));
  }
  return counts;
}

}  // namespace srjit::explain
