#include "tests/sass_verifier/hazards.h"

#include <algorithm>
#include <array>
#include <map>
#include <tuple>

#include <fmt/format.h>

namespace srjit::sass {
namespace {

constexpr std::size_t kRegisters = 255, kPredicates = 7, kBarriers = 6;
constexpr std::uint8_t kLongAgo = 63;  // cycles after which no delay is left

/// Writers of fixed latency that differ in it. The lower half of a wide product comes earlier.
enum Writer : std::size_t { kAluWriter, kFmaWriter, kWideLowWriter, kWideHighWriter, kDoubleWriter, kWriters };
constexpr std::array<std::string_view, kWriters> kWriterNames = {
    "an ALU instruction", "an FMA instruction", "IMAD.WIDE (lower half)", "IMAD.WIDE", "a double instruction"};

/// The same for predicates.
enum TruthWriter : std::size_t { kCompareWriter, kDoubleCompareWriter, kTruthWriters };
constexpr std::array<Form, kTruthWriters> kTruthExamples = {Form::kFSetPRR, Form::kDSetPRR};

bool isWideMultiply(Form form) { return form == Form::kImadWideURRR || form == Form::kImadWideURIR; }

Writer writerOf(Form form, bool upper_half) {
  if (isWideMultiply(form)) return upper_half ? kWideHighWriter : kWideLowWriter;
  if (infoOf(form).pipe == Pipe::kDouble) return kDoubleWriter;
  return infoOf(form).pipe == Pipe::kFma ? kFmaWriter : kAluWriter;
}

/// registerDelay() where it is known which half of a pair is meant.
unsigned delayOf(Writer writer, Form reader, std::size_t source, bool upper_half) {
  if (writer == kDoubleWriter) return registerDelay(Form::kDAddRR, reader);
  const bool fma = infoOf(reader).pipe == Pipe::kFma;
  if (isWideMultiply(reader) && source == 2 && upper_half) return writer == kAluWriter ? 3 : 2;
  if (isWideMultiply(reader) && source != 2) {
    if (writer == kWideLowWriter) return 4;
    if (writer == kWideHighWriter) return 6;
  }
  if (writer == kWideLowWriter && fma) return 2;
  if (writer == kWideLowWriter && infoOf(reader).pipe == Pipe::kAlu) return 3;
  return registerDelay(writer == kAluWriter ? Form::kMovR : Form::kFAddRR, reader);
}

bool usesDescriptor(Form form) {
  return form == Form::kLdg || form == Form::kLdg64 || form == Form::kLdg128 || form == Form::kStg ||
         form == Form::kStg64;
}

/// Instructions that read their sources in the order of their issue, so that a later one's barrier covers the earlier.
/// All but loads also deliver in that order.
enum class Queue : std::uint8_t { kNone, kSpecial, kShuffle, kMemory, kDouble };
Queue queueOf(Form form) {
  if (form == Form::kShflBfly) return Queue::kShuffle;
  if (form == Form::kMufuR || form == Form::kFRndR || form == Form::kFRndDouble || form == Form::kFChkRR) {
    return Queue::kSpecial;
  }
  if (usesDescriptor(form)) return Queue::kMemory;
  return infoOf(form).pipe == Pipe::kDouble ? Queue::kDouble : Queue::kNone;
}

/// A kVariable instruction whose result or sources were not waited for yet. Any barrier of a set is enough.
struct Outstanding {
  std::size_t instruction;
  bool writes, reads;
  std::uint8_t write_barriers, read_barriers;
  friend bool operator==(const Outstanding&, const Outstanding&) = default;
};

/// The data-flow state before an instruction is issued. The worse case has smaller ages and more outstanding.
struct State {
  std::array<std::array<std::uint8_t, kRegisters + 1>, kWriters> written;  // cycles since
  std::array<std::uint8_t, kRegisters + 1> read;                           // cycles since a fixed instruction read it
  std::array<std::array<std::uint8_t, kPredicates + 1>, kTruthWriters> predicate_written;  // cycles since
  std::array<std::uint8_t, kBarriers> barrier_set;
  std::uint8_t descriptor_written = kLongAgo;
  std::vector<Outstanding> outstanding = {};  // by instruction

  State() {
    for (auto& ages : written) ages.fill(kLongAgo);
    read.fill(kLongAgo);
    for (auto& ages : predicate_written) ages.fill(kLongAgo);
    barrier_set.fill(kLongAgo);
  }
  friend bool operator==(const State&, const State&) = default;

  void merge(const State& other) {
    for (std::size_t w = 0; w < kWriters; ++w) younger(written[w], other.written[w]);
    younger(read, other.read);
    for (std::size_t w = 0; w < kTruthWriters; ++w) younger(predicate_written[w], other.predicate_written[w]);
    younger(barrier_set, other.barrier_set);
    descriptor_written = std::min(descriptor_written, other.descriptor_written);
    for (const Outstanding& theirs : other.outstanding) {
      Outstanding& ours = add(theirs);
      ours.writes |= theirs.writes;
      ours.reads |= theirs.reads;
      ours.write_barriers &= theirs.write_barriers;
      ours.read_barriers &= theirs.read_barriers;
    }
  }
  void pass(unsigned cycles) {
    for (auto& ages : written) age(ages, cycles);
    age(read, cycles);
    for (auto& ages : predicate_written) age(ages, cycles);
    age(barrier_set, cycles);
    descriptor_written = static_cast<std::uint8_t>(std::min<unsigned>(descriptor_written + cycles, kLongAgo));
  }
  void waitFor(unsigned barrier) {
    for (Outstanding& one : outstanding) {
      if ((one.write_barriers >> barrier & 1) != 0) one.writes = one.reads = false;
      if ((one.read_barriers >> barrier & 1) != 0) one.reads = false;
    }
    std::erase_if(outstanding, [](const Outstanding& one) { return !one.writes && !one.reads; });
  }
  /// The entry of that instruction, which is `one` if there was none.
  Outstanding& add(const Outstanding& one) {
    const auto place = std::ranges::lower_bound(outstanding, one.instruction, {}, &Outstanding::instruction);
    if (place != outstanding.end() && place->instruction == one.instruction) return *place;
    return *outstanding.insert(place, one);
  }

 private:
  template <class Array>
  static void younger(Array& ours, const Array& theirs) {
    for (std::size_t i = 0; i < ours.size(); ++i) ours[i] = std::min(ours[i], theirs[i]);
  }
  template <class Array>
  static void age(Array& ages, unsigned cycles) {
    for (auto& one : ages) one = static_cast<std::uint8_t>(std::min<unsigned>(one + cycles, kLongAgo));
  }
};

bool writesDescriptor(Form form) { return form == Form::kUldcDescriptor || form == Form::kLdcuDescriptor; }

bool writesRegister(const Instruction& i, unsigned r) {
  return i.destination != kZero && r >= i.destination && r < i.destination + infoOf(i.form).result_registers;
}
bool readsRegister(const Instruction& i, unsigned r) {
  for (std::size_t s = 0; s < i.sources.size(); ++s) {
    if (i.sources[s] != kZero && r >= i.sources[s] && r < i.sources[s] + infoOf(i.form).source_registers[s])
      return true;
  }
  return false;
}

/// The transfer function of one instruction; also reports the rules that it breaks.
class Step {
 public:
  Step(const CheckedCode& checked, State& state, std::size_t index, std::vector<Violation>* found)
      : checked_(checked),
        state_(state),
        i_(*checked.code[index]),
        info_(infoOf(i_.form)),
        index_(index),
        found_(found),
        guarded_(i_.guard != kTrue),
        variable_(timingOf(i_.form, checked.architecture) == Timing::kVariable) {}

  void run() {
    wait();
    readPredicates();
    readRegisters();
    writeRegisters();
    writePredicate();
    if (writesDescriptor(i_.form) && !variable_) state_.descriptor_written = 0;
    if (variable_) leaveOutstanding();
    setBarriers();
    stall();
    state_.pass(std::max<unsigned>(i_.control.stall, 1));
  }

 private:
  template <class... Values>
  void broken(fmt::format_string<Values...> text, Values&&... values) {
    if (found_ != nullptr) found_->push_back({index_, fmt::format(text, std::forward<Values>(values)...)});
  }
  template <class Belongs>
  bool isOutstanding(Belongs belongs) const {
    return std::ranges::any_of(state_.outstanding,
                               [&](const Outstanding& one) { return belongs(one, *checked_.code[one.instruction]); });
  }

  void wait() {
    for (unsigned barrier = 0; barrier < kBarriers; ++barrier) {
      if ((i_.control.wait_mask >> barrier & 1) == 0) continue;
      const unsigned cycles = state_.barrier_set[barrier];
      if (cycles < kBarrierDelay) {
        broken("barrier {} is waited for {} cycles after it was set: {} are needed", barrier, cycles, kBarrierDelay);
      }
      state_.waitFor(barrier);
    }
  }

  void readPredicate(std::uint8_t predicate, bool as_guard) {
    const unsigned number = predicate & 7U;
    if (number == kTrue) return;
    if (predicateIsOutstanding(number)) broken("P{} is read before the barrier of its write was waited for", number);
    for (std::size_t w = 0; w < kTruthWriters; ++w) {
      const unsigned cycles = state_.predicate_written[w][number];
      const unsigned needed = predicateDelay(kTruthExamples[w], i_.form, as_guard, checked_.architecture);
      if (cycles < needed) {
        broken("P{} is read {} cycles after it was written: {} needs {}", number, cycles, info_.name, needed);
      }
    }
  }
  bool predicateIsOutstanding(unsigned number) const {
    return isOutstanding([&](const Outstanding& one, const Instruction& writer) {
      return one.writes && infoOf(writer.form).writes_predicate && writer.predicate == number;
    });
  }
  void readPredicates() {
    readPredicate(i_.guard, true);
    if (info_.reads_condition) readPredicate(i_.condition, false);
    if (!usesDescriptor(i_.form)) return;
    if (isOutstanding([](const Outstanding& one, const Instruction& writer) {
          return one.writes && writesDescriptor(writer.form);
        })) {
      broken("UR4 is read before the barrier of its write was waited for");
    }
    if (state_.descriptor_written < kDescriptorDelay) {
      broken("UR4 is read {} cycles after it was written: {} are needed", unsigned{state_.descriptor_written},
             kDescriptorDelay);
    }
  }

  /// Whether the registers exist and are aligned as their number asks.
  bool obeys(std::uint8_t first, unsigned count) {
    if (first == kZero || count == 0) return false;
    if (first % count != 0) broken("R{} does not begin {} aligned registers", first, count);
    if (first + count > checked_.registers) {
      broken("R{} is used, but {} registers are declared", first + count - 1, checked_.registers);
    }
    return first + count <= kRegisters;
  }

  void readRegisters() {
    for (std::size_t source = 0; source < i_.sources.size(); ++source) {
      const unsigned count = info_.source_registers[source];
      if (!obeys(i_.sources[source], count)) continue;
      for (unsigned n = 0; n < count; ++n) readRegister(i_.sources[source] + n, source, n != 0);
    }
  }
  void readRegister(unsigned r, std::size_t source, bool upper_half) {
    if (isOutstanding(
            [&](const Outstanding& one, const Instruction& i) { return one.writes && writesRegister(i, r); })) {
      broken("R{} is read before the barrier of its write was waited for", r);
    }
    for (std::size_t w = 0; w < kWriters; ++w) {
      const unsigned cycles = state_.written[w][r];
      const unsigned needed = delayOf(static_cast<Writer>(w), i_.form, source, upper_half);
      if (cycles < needed) {
        broken("R{} is read {} cycles after {} wrote it: {} needs {}", r, cycles, kWriterNames[w], info_.name, needed);
      }
    }
    if (!variable_) state_.read[r] = 0;
  }

  void writeRegisters() {
    if (!obeys(i_.destination, info_.result_registers)) return;
    for (unsigned n = 0; n < info_.result_registers; ++n) writeRegister(i_.destination + n, n != 0);
  }
  void writeRegister(unsigned r, bool upper_half) {
    if (isOutstanding(
            [&](const Outstanding& one, const Instruction& i) { return one.writes && writesRegister(i, r); })) {
      broken("R{} is overwritten before the barrier of its write was waited for", r);
    }
    const Queue queue = variable_ && checked_.in_order ? queueOf(i_.form) : Queue::kNone;
    if (isOutstanding([&](const Outstanding& one, const Instruction& i) {
          return one.reads && readsRegister(i, r) && (queue == Queue::kNone || queueOf(i.form) != queue);
        })) {
      broken("R{} is overwritten before a barrier of its last reader was waited for", r);
    }
    if (variable_ && info_.pipe != Pipe::kDouble && state_.read[r] < kReadDelay) {
      broken("R{} is overwritten {} cycles after it was read: {} needs {}", r, unsigned{state_.read[r]}, info_.name,
             kReadDelay);
    }
    constexpr std::array<Form, kWriters> kExamples = {Form::kMovR, Form::kFAddRR, Form::kImadWideURRR,
                                                      Form::kImadWideURRR, Form::kDAddRR};
    for (std::size_t w = 0; w < kWriters; ++w) {
      const unsigned cycles = state_.written[w][r];
      const unsigned needed = overwriteDelay(kExamples[w], i_.form, guarded_);
      if (cycles < needed) {
        broken("R{} is overwritten {} cycles after {} wrote it: {} needs {}", r, cycles, kWriterNames[w], info_.name,
               needed);
      }
      if (!guarded_) state_.written[w][r] = kLongAgo;
    }
    if (!variable_) state_.written[writerOf(i_.form, upper_half)][r] = 0;
  }

  void writePredicate() {
    if (!info_.writes_predicate || i_.predicate == kTrue) return;
    const unsigned p = i_.predicate & 7U;
    if (predicateIsOutstanding(p)) broken("P{} is overwritten before the barrier of its write was waited for", p);
    for (std::size_t w = 0; w < kTruthWriters; ++w) {
      const unsigned cycles = state_.predicate_written[w][p];
      const unsigned needed = overwriteDelay(kTruthExamples[w], i_.form, guarded_);
      if (cycles < needed) {
        broken("P{} is overwritten {} cycles after it was written: {} needs {}", p, cycles, info_.name, needed);
      }
      if (!guarded_) state_.predicate_written[w][p] = kLongAgo;
    }
    if (variable_) return;
    state_.predicate_written[info_.pipe == Pipe::kDouble ? kDoubleCompareWriter : kCompareWriter][p] = 0;
  }

  void leaveOutstanding() {
    const auto bit = [](std::uint8_t barrier) {
      return static_cast<std::uint8_t>(barrier < kBarriers ? 1U << barrier : 0U);
    };
    const std::uint8_t write_bit = bit(i_.control.write_barrier), read_bit = bit(i_.control.read_barrier);
    const Queue queue = checked_.in_order ? queueOf(i_.form) : Queue::kNone;
    if (queue != Queue::kNone) {
      for (Outstanding& one : state_.outstanding) {
        if (queueOf(checked_.code[one.instruction]->form) != queue) continue;
        if (queue != Queue::kMemory) one.write_barriers |= write_bit;
        one.read_barriers |= read_bit;
      }
    }
    const bool writes = (info_.result_registers != 0 && i_.destination != kZero) || writesDescriptor(i_.form) ||
                        (info_.writes_predicate && i_.predicate != kTrue);
    const Outstanding one = {index_, writes, true, write_bit, read_bit};
    state_.add(one) = one;
  }

  void setBarriers() {
    for (const std::uint8_t barrier : {i_.control.write_barrier, i_.control.read_barrier}) {
      if (barrier < kBarriers) state_.barrier_set[barrier] = 0;
      if (barrier == kBarriers) broken("there is no barrier {}", kBarriers);
    }
  }

  void stall() {
    const bool branches = i_.form == Form::kBra || i_.form == Form::kBrx || i_.form == Form::kExit;
    const bool is_last = i_.form == Form::kBra && i_.immediate == 0U - std::uint32_t{sizeof(Word)};
    if (branches && !is_last && i_.control.stall < kBranchStall) {
      broken("{} stalls for {} cycles: {} are needed", info_.name, i_.control.stall, kBranchStall);
    }
  }

  const CheckedCode& checked_;
  State& state_;
  const Instruction& i_;
  const FormInfo& info_;
  std::size_t index_;
  std::vector<Violation>* found_;
  bool guarded_, variable_;
};

/// Basic blocks, with the state at the beginning of each and a worklist of those whose state has changed.
class Walk {
 public:
  explicit Walk(const CheckedCode& checked) : checked_(checked), size_(checked.code.size()) {}

  std::vector<Violation> run(std::size_t limit) {
    std::vector<Violation> found;
    if (size_ == 0) return found;
    findBlocks(found);
    reach(0, State());
    while (!work_.empty()) {
      const std::size_t begin = work_.back();
      work_.pop_back();
      waiting_.erase(begin);
      State state = states_.at(begin);
      const std::size_t end = runBlock(begin, state, nullptr);
      for (const std::size_t next : successors(end - 1)) reach(next, state);
    }
    for (auto& [begin, entry] : states_) {
      State state = entry;
      const std::size_t end = runBlock(begin, state, &found);
      if (successorsLeaveCode(end - 1)) found.push_back({end - 1, "the code runs past its end"});
      if (found.size() >= limit) break;
    }
    std::ranges::sort(found, {}, [](const Violation& one) { return std::tie(one.instruction, one.rule); });
    if (found.size() > limit) found.resize(limit);
    return found;
  }

 private:
  const std::optional<Instruction>& at(std::size_t index) const { return checked_.code[index]; }
  bool isForm(std::size_t index, Form form) const { return at(index) && at(index)->form == form; }
  bool endsBlock(std::size_t index) const {
    return isForm(index, Form::kBra) || isForm(index, Form::kBrx) || isForm(index, Form::kExit);
  }

  /// The target of a BRA, nothing if it is outside.
  std::optional<std::size_t> target(std::size_t index) const {
    const auto offset = static_cast<std::int64_t>(static_cast<std::int32_t>(at(index)->immediate));
    constexpr auto kBytes = static_cast<std::int64_t>(sizeof(Word));
    const std::int64_t to = static_cast<std::int64_t>(index) + 1 + offset / kBytes;
    if (offset % kBytes != 0 || to < 0 || to >= static_cast<std::int64_t>(size_)) return std::nullopt;
    return static_cast<std::size_t>(to);
  }

  void findBlocks(std::vector<Violation>& found) {
    leader_.assign(size_, false);
    for (const std::uint32_t begin : checked_.indirect_targets) {
      if (begin < size_) leader_[begin] = true;
    }
    for (std::size_t i = 0; i < size_; ++i) {
      if (isForm(i, Form::kBra)) {
        if (const auto to = target(i)) {
          leader_[*to] = true;
        } else {
          found.push_back({i, "the branch leaves the code"});
        }
      }
      if (isForm(i, Form::kBrx) && checked_.indirect_targets.empty()) {
        found.push_back({i, "no targets are given for the indirect branch"});
      }
      if (endsBlock(i) && i + 1 < size_) leader_[i + 1] = true;
    }
    for (const std::uint32_t begin : checked_.indirect_targets) {
      if (begin >= size_) found.push_back({size_ - 1, fmt::format("indirect target {} is outside of the code", begin)});
    }
  }

  std::vector<std::size_t> successors(std::size_t last) const {
    std::vector<std::size_t> next;
    if (isForm(last, Form::kBra)) {
      if (const auto to = target(last)) next.push_back(*to);
    } else if (isForm(last, Form::kBrx)) {
      for (const std::uint32_t to : checked_.indirect_targets) {
        if (to < size_) next.push_back(to);
      }
    }
    if (fallsThrough(last) && last + 1 < size_) next.push_back(last + 1);
    return next;
  }
  bool fallsThrough(std::size_t last) const { return !endsBlock(last) || at(last)->guard != kTrue; }
  bool successorsLeaveCode(std::size_t last) const { return last + 1 == size_ && fallsThrough(last); }

  void reach(std::size_t begin, const State& state) {
    const auto [place, is_new] = states_.try_emplace(begin, state);
    if (!is_new) {
      State merged = place->second;
      merged.merge(state);
      if (merged == place->second) return;
      place->second = merged;
    }
    if (waiting_.insert({begin, true}).second) work_.push_back(begin);
  }

  std::size_t runBlock(std::size_t begin, State& state, std::vector<Violation>* found) const {
    std::size_t i = begin;
    do {
      if (at(i)) {
        Step(checked_, state, i, found).run();
      } else {
        state = State();
      }
      ++i;
    } while (i < size_ && !leader_[i]);
    return i;
  }

  const CheckedCode& checked_;
  std::size_t size_;
  std::vector<bool> leader_;
  std::map<std::size_t, State> states_;
  std::map<std::size_t, bool> waiting_;
  std::vector<std::size_t> work_;
};

}  // namespace

std::vector<Violation> findHazards(const CheckedCode& checked, std::size_t limit) { return Walk(checked).run(limit); }

}  // namespace srjit::sass
