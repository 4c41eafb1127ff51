#include "tests/gpu_model/sass_machine.h"

#include <cstring>

#include "compiler/sass/cubin.h"

namespace srjit {

using sass::Form;
using sass::Instruction;
using sass::kZero;

std::uint64_t SassMemory::add(std::span<std::byte> bytes) {
  const std::uint64_t address = next_;
  pieces_.emplace(address, bytes);
  next_ = (next_ + bytes.size() + 4096) / 256 * 256;
  return address;
}

std::byte* SassMemory::find(std::uint64_t address) const {
  auto piece = pieces_.upper_bound(address);
  if (address % 4 == 0 && piece != pieces_.begin()) {
    --piece;
    const std::uint64_t offset = address - piece->first;
    if (offset + 4 <= piece->second.size()) return piece->second.data() + offset;
  }
  throw SassFault("an access outside memory or misaligned, at " + std::to_string(address));
}

std::uint32_t SassMemory::load(std::uint64_t address) const {
  std::uint32_t value = 0;
  std::memcpy(&value, find(address), sizeof value);
  return value;
}

void SassMemory::store(std::uint64_t address, std::uint32_t value) { std::memcpy(find(address), &value, sizeof value); }

SassMachine::SassMachine(std::span<const sass::Instruction> code, std::span<const std::byte> bank, SassMemory& memory,
                         unsigned registers, unsigned architecture)
    : code_(code), bank_(bank), memory_(memory), register_count_(registers), architecture_(architecture) {
  for (std::size_t f = 0; f < forms_.size(); ++f) {
    const auto form = static_cast<Form>(f);
    forms_[f] = {sass::isAvailable(form, architecture), sass::timingOf(form, architecture)};
  }
}

void SassMachine::fault(const std::string& what) const {
  throw SassFault("instruction " + std::to_string(at_) + ", " + sass::print(code_[at_], true) + ": " + what);
}

std::uint32_t SassMachine::constant(std::uint32_t offset) const {
  if (offset % 4 != 0 || offset + 4 > bank_.size()) fault("a constant outside the bank");
  std::uint32_t value = 0;
  std::memcpy(&value, bank_.data() + offset, sizeof value);
  return value;
}

std::uint32_t SassMachine::predicate(unsigned n) const {
  const std::uint32_t value = (n & 7) == sass::kTrue ? ~0U : predicates_[n & 7];
  return (n & sass::kNot) != 0 ? ~value : value;
}

void SassMachine::writePredicate(unsigned n, std::uint32_t value, std::uint32_t active) {
  if (n != sass::kTrue) predicates_[n] = (predicates_[n] & ~active) | (value & active);
}

std::uint64_t SassMachine::wideBits(unsigned r, unsigned lane) const {
  if (r == kZero) return 0;
  return registers_[r][lane] | std::uint64_t{registers_[r + 1][lane]} << 32;
}

void SassMachine::write(unsigned r, unsigned lane, std::uint32_t value) {
  if (r != kZero) registers_[r][lane] = value;
}

std::size_t SassMachine::runWarp(unsigned warp, unsigned block_x, unsigned block_y) {
  warp_ = warp;
  block_x_ = block_x;
  block_y_ = block_y;
  for (Lanes& lanes : registers_) lanes.fill(0x7fabcdef);  // unwritten registers hold NaN
  predicates_.fill(0x5a5a5a5a);
  register_timing_.fill({});
  predicate_timing_.fill({});
  barrier_set_.fill(-100);
  has_descriptor_ = false;
  at_ = 0;
  now_ = 0;
  is_done_ = false;
  std::size_t issued = 0;
  while (!is_done_) {
    if (at_ >= code_.size()) throw SassFault("execution leaves the code");
    if (++issued > 10'000'000) fault("no end");
    const Instruction& i = code_[at_];
    next_ = at_ + 1;
    checkTiming(i);
    execute(i);
    markTiming(i);
    now_ += i.control.stall;
    at_ = next_;
  }
  return issued;
}

std::string SassMachine::textOf(Place what) { return what.file + std::to_string(what.number); }

void SassMachine::checkRead(Timing& timing, unsigned delay, Place what) {
  if (timing.to_write != 0) fault("reads " + textOf(what) + " before its barrier was waited for");
  if (timing.writer >= 0 && now_ < timing.written + delay) fault("reads " + textOf(what) + " too early");
}

void SassMachine::checkWrite(const Timing& timing, const Instruction& i, Place what) {
  if (timing.to_write != 0) fault("writes " + textOf(what) + ", which is still to be written");
  if (timing.to_read != 0) fault("writes " + textOf(what) + ", which is still to be read");
  const bool guarded = i.guard != sass::kTrue;
  if (timing.writer >= 0 &&
      now_ < timing.written + sass::overwriteDelay(static_cast<Form>(timing.writer), i.form, guarded)) {
    fault("overwrites " + textOf(what) + " too early");
  }
  const bool reads_first = sass::infoOf(i.form).pipe == sass::Pipe::kDouble;
  if (factsOf(i.form).timing == sass::Timing::kVariable && !reads_first && now_ < timing.read + 2) {
    fault("overwrites " + textOf(what) + " right after it was read");
  }
}

void SassMachine::checkTiming(const Instruction& i) {
  const sass::FormInfo& info = sass::infoOf(i.form);
  if (!factsOf(i.form).is_available) fault("no instruction of this architecture");
  for (unsigned barrier = 0; barrier < 6; ++barrier) {
    if ((i.control.wait_mask >> barrier & 1) == 0) continue;
    if (now_ < barrier_set_[barrier] + static_cast<Cycle>(sass::kBarrierDelay)) fault("waits for a barrier too early");
    const auto keep = static_cast<std::uint8_t>(~(1U << barrier));
    const auto clear = [&](Timing& timing) {
      timing.to_write &= keep;
      timing.to_read &= keep;
    };
    for (Timing& timing : register_timing_) clear(timing);
    for (Timing& timing : predicate_timing_) clear(timing);
    clear(descriptor_);
  }
  for (unsigned slot = 0; slot < 3; ++slot) {
    const unsigned first = i.sources[slot], count = info.source_registers[slot];
    if (first == kZero || count == 0) continue;
    if (first + count > register_count_) fault("a source beyond the thread's registers");
    if (count > 1 && first % count != 0) fault("a wide source that is not aligned");
    for (unsigned r = first; r < first + count; ++r) {
      const int writer = register_timing_[r].writer;
      const unsigned delay = writer < 0 ? 0 : sass::registerDelay(static_cast<Form>(writer), i.form);
      checkRead(register_timing_[r], delay, Place{"R", r});
    }
  }
  const auto checkPredicate = [&](unsigned n, bool as_guard) {
    if ((n & 7) == sass::kTrue) return;
    const int writer = predicate_timing_[n & 7].writer;
    const unsigned delay =
        writer < 0 ? 0 : sass::predicateDelay(static_cast<Form>(writer), i.form, as_guard, architecture_);
    checkRead(predicate_timing_[n & 7], delay, Place{"P", n & 7U});
  };
  checkPredicate(i.guard, true);
  if (info.reads_condition) checkPredicate(i.condition, false);
  if (i.destination != kZero && info.result_registers > 0) {
    const unsigned count = info.result_registers;
    if (i.destination + count > register_count_) fault("a result beyond the thread's registers");
    if (i.destination % count != 0) fault("a wide result that is not aligned");
    for (unsigned r = i.destination; r < i.destination + count; ++r) {
      checkWrite(register_timing_[r], i, Place{"R", r});
    }
  }
  if (info.writes_predicate && i.predicate != sass::kTrue) {
    checkWrite(predicate_timing_[i.predicate], i, Place{"P", i.predicate});
  }
  if (info.pipe == sass::Pipe::kMemory && i.form != Form::kLdc && i.form != Form::kLdc64 && i.form != Form::kShflBfly) {
    if (!has_descriptor_) fault("no descriptor of memory");
    checkRead(descriptor_, sass::kDescriptorDelay, Place{"UR", 4});
  }
}

void SassMachine::markTiming(const Instruction& i) {
  const sass::FormInfo& info = sass::infoOf(i.form);
  const bool variable = factsOf(i.form).timing == sass::Timing::kVariable;
  const auto bit = [](std::uint8_t barrier) {
    return static_cast<std::uint8_t>(barrier == sass::kNoBarrier ? 0x80 : 1U << barrier);
  };
  for (const std::uint8_t barrier : {i.control.write_barrier, i.control.read_barrier}) {
    if (barrier != sass::kNoBarrier) barrier_set_[barrier] = now_;
  }
  const auto written = [&](Timing& timing) {
    timing.written = now_;
    timing.writer = variable ? -1 : static_cast<int>(i.form);
    if (variable) timing.to_write |= bit(i.control.write_barrier);
  };
  // Without a read barrier, a source counts as read when the result is ready; without any barrier, it never does.
  const std::uint8_t to_read =
      bit(i.control.read_barrier != sass::kNoBarrier ? i.control.read_barrier : i.control.write_barrier);
  for (unsigned slot = 0; slot < 3; ++slot) {
    if (i.sources[slot] == kZero) continue;
    for (unsigned r = i.sources[slot]; r < i.sources[slot] + unsigned{info.source_registers[slot]}; ++r) {
      if (variable) {
        register_timing_[r].to_read |= to_read;
      } else {
        register_timing_[r].read = now_;
      }
    }
  }
  if (i.destination != kZero) {
    for (unsigned r = i.destination; r < i.destination + unsigned{info.result_registers}; ++r) {
      written(register_timing_[r]);
    }
  }
  if (info.writes_predicate && i.predicate != sass::kTrue) written(predicate_timing_[i.predicate]);
  if (i.form == Form::kUldcDescriptor || i.form == Form::kLdcuDescriptor) {
    has_descriptor_ = true;
    written(descriptor_);
  }
}

}  // namespace srjit
