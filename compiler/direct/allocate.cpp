#include "compiler/direct/allocate.h"

#include <algorithm>
#include <array>
#include <bit>

#include "compiler/direct/registers.h"

namespace srjit::direct {
namespace {

constexpr int kLongestStall = 15;
constexpr std::uint32_t kWordBytes = sizeof(sass::Word);
constexpr int kMostLiveTruths = int{kFreePredicates};

constexpr std::uint64_t bitsOfStall(unsigned cycles, bool yield) {
  return std::uint64_t{cycles} << (sass::kStallAt - 64) | std::uint64_t{yield} << (sass::kYieldAt - 64);
}
// Stands for all predicates in a barrier's set of written registers. No register has that number.
constexpr RegisterSet kAnyTruth = registerSet(kMostRegisters - sass::kHiddenRegisters);
constexpr std::uint64_t kIdle = sass::bitsOf({.stall = 0});
constexpr std::uint64_t kBarrierBits =
    std::uint64_t{7} << (sass::kWriteBarrierAt - 64) | std::uint64_t{7} << (sass::kReadBarrierAt - 64);

bool isVariable(const OpcodeFacts& facts) { return facts.timing == sass::Timing::kVariable; }
bool isBranch(const OpcodeFacts& facts) { return facts.pipe == sass::Pipe::kControl; }
bool isStore(Opcode opcode) { return opcode == Opcode::kStg || opcode == Opcode::kStg64; }
/// From the issue of a branch, or of a call, whose branch is its second instruction, to that of the target.
int cyclesToTarget(Opcode opcode) {
  constexpr int kOfBranch = int{sass::kBranchStall};
  if (opcode == Opcode::kCall) return kOfBranch + 1;
  return isBranch(factsOf(opcode)) ? kOfBranch : 0;
}
unsigned upperOf(unsigned place) { return place == sass::kZero ? place : place + 1; }

}  // namespace

struct Allocator::State {
  explicit State(unsigned architecture) : table_(opcodeTableOf(architecture)), architecture_(architecture) {}

  bool run(const Code& code, Scheduler& scheduler, const RegisterFile& file, std::uint32_t subroutines,
           std::vector<sass::Word>& words) {
    begin(code, file);
    subroutines_ = subroutines;
    if (origins_ != nullptr) origins_->clear();
    words_ = &words;
    first_ = words.size();
    if (!(origins_ != nullptr ? placeAll<true>(scheduler, file) : placeAll<false>(scheduler, file))) return false;
    words.back().high |= bitsOfStall(sass::kBranchStall, false);
    setBranchOffsets();
    return true;
  }

  static constexpr unsigned kBarriers = sass::kBarriers, kAllBarriers = (1U << kBarriers) - 1;
  static constexpr unsigned kPlaces = 8;  ///< predicates
  using BarrierSet = unsigned;
  using TruthSet = unsigned;  ///< of predicates
  using Cycle = std::int32_t;

  /// The last write of a register or predicate with fixed latency: its time and the kind of opcode that wrote it.
  struct Written {
    Cycle at = -1000;
    std::uint32_t kind = 0;
  };
  /// Registers and predicates that instructions in flight write and read, and that have not been waited for.
  struct Barrier {
    RegisterSet written = 0, read = 0;  ///< kAnyTruth is in `written` if `truths` are
    TruthSet truths = 0;                ///< written
    Cycle set = 0;
  };
  /// The instruction being emitted.
  struct Issue {
    const OpcodeRow& row;
    Cycle now;  ///< the earliest cycle of its issue
    sass::Word word;
    RegisterSet sources = 0, freed = 0, results = 0;
    unsigned predicate = sass::kTrue;  ///< the predicate that it writes
  };
  /// A branch whose offset is still to be set with the operation that it goes to, or an operation that may be a target.
  struct Place {
    std::uint32_t operation, position;
  };

  void begin(const Code& code, const RegisterFile& file) {
    code_ = &code;
    values_ = code.values();
    truths_ = code.truths();
    free_ = registerSet(0, file.limit - 1) | registerSet(file.limit - 1);
    free_ &= ~(file.reserved | file.of_subroutines);
    used_ = file.reserved;
    of_subroutines_ = file.of_subroutines;
    to_write_ = to_read_ = just_read_ = 0;
    free_predicates_ = ((1U << kFreePredicates) - 1) << kFirstFreePredicate;
    live_ = live_truths_ = 0;
    registers_.fill({});
    predicates_.fill({});
    barriers_.fill({});
    busy_ = 0;
    issued_ = -1;
    spacing_ = 1;
    finished_ = 0;
    branches_.clear();
    calls_.clear();
    exits_.clear();
    targets_.clear();
  }

  // A template, since most runs are not traced and the loop is hot.
  template <bool kTraced>
  bool placeAll(Scheduler& scheduler, const RegisterFile& file) {
    for (;;) {
      const std::uint32_t at = scheduler.next(live_ >= file.values, live_truths_ >= kMostLiveTruths);
      if (at == Scheduler::kEnd) return true;
      if (!place(at, code_->operation(at))) {
        words_->resize(first_);
        return false;
      }
      // With the waiting Nops before it.
      if constexpr (kTraced) origins_->resize(words_->size() - first_, at);
    }
  }

  [[gnu::always_inline]] inline bool place(std::uint32_t at, const Operation& operation) {
    const OpcodeRow& row = table_[static_cast<std::size_t>(operation.opcode)];
    const bool is_rare = (row.is_rare | static_cast<unsigned>(operation.synchronized)) != 0;
    return is_rare ? placeRare(at, operation, row)
                   : placeInstruction(operation, row, operation.immediate, false, false);
  }

  // A result in a given register is like one in a machine register.
  [[gnu::noinline]] bool placeInPlace(std::uint32_t at, const Operation& operation) {
    const OpcodeRow& row = table_[static_cast<std::size_t>(operation.opcode)];
    const ValueId place = values_[operation.sources[0]].place;
    values_[operation.destination].place = place;
    Operation placed = operation;
    placed.in_place = false;
    placed.destination = place;
    if (!placeRare(at, placed, row)) return false;
    free_ &= ~registerSet(place, row.facts.results);
    live_ += row.facts.results;
    return true;
  }

  [[gnu::noinline]] bool placeRare(std::uint32_t at, const Operation& operation, const OpcodeRow& row) {
    if (operation.in_place) return placeInPlace(at, operation);
    std::uint32_t immediate = operation.immediate, upper_immediate = immediate;
    if (operation.opcode == Opcode::kCall) {
      if (live_truths_ > 0) return false;  // a subroutine uses all predicates
      immediate = 0;                       // until setBranchOffsets()
    }
    if (at == subroutines_) free_ = of_subroutines_;
    if (operation.opcode == Opcode::kMovPairI) {
      const std::uint64_t bits = code_->wideLiteralAt(operation.immediate);
      immediate = static_cast<std::uint32_t>(bits);
      upper_immediate = static_cast<std::uint32_t>(bits >> 32);
    }
    if (!placeInstruction(operation, row, immediate, operation.synchronized, row.keeps_sources != 0)) return false;
    markControl(at, operation);
    // The lower register of a pair is even. Fields are changed by exclusive or.
    if (row.half != 0) row.encoding.putSource(words_->back(), 0, sass::kZero ^ 1U);
    if (row.upper != nullptr) emitUpper(operation, row, upper_immediate);
    if (operation.opcode == Opcode::kCall) markCall(operation);
    return true;
  }

  [[gnu::always_inline]] inline bool placeInstruction(const Operation& operation, const OpcodeRow& row,
                                                      std::uint32_t immediate, bool is_synchronized,
                                                      bool keeps_sources) {
    Issue issue{.row = row,
                .now = issued_ + spacing_,
                .word = row.encoding.begin(operation.negated, operation.magnitude, operation.modifier, immediate)};
    issue.word.high |= kIdle;
    spacing_ = 1;
    if (is_synchronized) {
      waitFor(busy_, issue);
      issue.now = std::max(issue.now, finished_ - cyclesToTarget(operation.opcode));
    }
    if (operation.guard != kAlways) sass::putGuard(issue.word, readPredicate(operation.guard, row.guard, issue));
    if (operation.condition != kAlways) {
      row.encoding.putCondition(issue.word, readPredicate(operation.condition, row.condition, issue));
    }
    readSources(operation, issue);
    if (!keeps_sources) free_ |= issue.freed;
    if (!writeRegisters(operation, issue) || !writePredicate(operation, issue)) return false;
    if (keeps_sources) free_ |= issue.freed;
    isVariable(row.facts) ? signal(operation, issue) : finish(operation, issue);
    emit(issue);
    return true;
  }

  // Branches on the third source only, which is rare; a branch on the second one predicts badly.
  [[gnu::always_inline]] inline void readSources(const Operation& operation, Issue& issue) {
    readSource(operation, 0, issue);
    readSource(operation, 1, issue);
    if (operation.sources[2] != kRz) readSource(operation, 2, issue);
    if ((issue.sources & to_write_) != 0) {
      const bool reads_truth = (issue.sources & to_write_ & kAnyTruth) != 0;
      waitFor(barriersOf(issue.sources & ~kAnyTruth, 0) | (reads_truth ? barriersOfTruths(operation) : 0), issue);
    }
  }

  [[gnu::always_inline]] inline void readSource(const Operation& operation, std::size_t i, Issue& issue) {
    Code::Operand& source = values_[operation.sources[i]];
    const std::int32_t if_last = --source.reads >> 31;
    const std::uint32_t place = source.place;
    const Written& written = registers_[place];
    const RegisterSet registers = RegisterSet{issue.row.source_masks[i]} << place % kMostRegisters;
    issue.row.encoding.putSource(issue.word, i, place);
    issue.now = std::max(issue.now, written.at + issue.row.value[written.kind]);
    issue.sources |= registers;
    issue.freed |= registers & static_cast<RegisterSet>(std::int64_t{if_last});
    live_ -= issue.row.facts.sources[i] & if_last;
  }

  [[gnu::always_inline]] inline unsigned readPredicate(PredicateId predicate, const OpcodeRow::Delays& delays,
                                                       Issue& issue) {
    Code::Operand& truth = truths_[predicate / 2];
    const std::int32_t if_last = --truth.reads >> 31;
    free_predicates_ |= (1U << truth.place) & static_cast<unsigned>(if_last);
    live_truths_ += if_last;
    const Written& written = predicates_[truth.place];
    issue.now = std::max(issue.now, written.at + delays[written.kind]);
    issue.sources |= kAnyTruth;
    return truth.place | (predicate & 1U) * sass::kNot;
  }

  [[gnu::always_inline]] inline bool writeRegisters(const Operation& operation, Issue& issue) {
    const OpcodeRow& row = issue.row;
    const unsigned width = row.facts.results;
    if (width == 0 || operation.destination == kRz) return true;
    const bool is_value = operation.destination >= kFirstValue;
    const unsigned first = is_value ? take(operation.destination, width) : operation.destination;
    if (first == kRz) return false;
    row.encoding.putDestination(issue.word, first);
    const RegisterSet results = registerSet(first, width);
    issue.results = results;
    if ((results & (to_write_ | to_read_)) != 0) waitFor(barriersOf(results, results), issue);
    const Cycle read_delay = (results & just_read_) != 0 ? row.read_delay : 0;
    issue.now = std::max(issue.now, issued_ + read_delay);
    const auto& overwrite = operation.guard == kAlways ? row.overwrite : row.guarded_overwrite;
    for (unsigned r = first; r < first + width; ++r) {
      issue.now = std::max(issue.now, registers_[r].at + overwrite[registers_[r].kind]);
    }
    return true;
  }

  [[gnu::always_inline]] inline bool writePredicate(const Operation& operation, Issue& issue) {
    if (operation.predicate == kAlways) return true;
    Code::Operand& truth = truths_[operation.predicate / 2];
    if (operation.predicate >= 2 * kFirstPredicate) {
      if (truth.reads < 0) return true;  // never read
      if (free_predicates_ == 0) return false;
      truth.place = static_cast<std::uint32_t>(std::countr_zero(free_predicates_));
      free_predicates_ &= ~(1U << truth.place);
      ++live_truths_;
    }
    issue.predicate = truth.place;
    issue.row.encoding.putPredicate(issue.word, truth.place);
    const Written& written = predicates_[truth.place];
    issue.now = std::max(issue.now, written.at + issue.row.overwrite[written.kind]);
    return true;
  }

  // Variable latency: assigns a barrier that signals the results.
  [[gnu::always_inline]] inline void signal(const Operation& operation, Issue& issue) {
    const unsigned number = takeBarrier();
    busy_ |= 1U << number;
    Barrier& barrier = barriers_[number];
    barrier.set = issue.now;
    barrier.read |= issue.sources;
    barrier.written |= issue.results;
    to_read_ |= issue.sources;
    to_write_ |= issue.results;
    if (issue.predicate != sass::kTrue) {
      barrier.truths |= 1U << issue.predicate;
      barrier.written |= kAnyTruth;
      to_write_ |= kAnyTruth;
    }
    just_read_ = 0;
    const unsigned at = isStore(operation.opcode) ? sass::kReadBarrierAt : sass::kWriteBarrierAt;
    issue.word.high ^= std::uint64_t{number ^ sass::kNoBarrier} << (at - 64);
  }

  // Fixed latency: records when the results are ready.
  [[gnu::always_inline]] inline void finish(const Operation& operation, const Issue& issue) {
    const OpcodeFacts& facts = issue.row.facts;
    just_read_ = issue.sources;
    const Written written{issue.now, issue.row.kind};
    Cycle latency = facts.latency;
    if (issue.results != 0) {
      const auto first = static_cast<std::size_t>(std::countr_zero(issue.results));
      registers_[first] = written;
      if (facts.results == 2) registers_[first + 1] = written;
      latency = issue.row.settling;
    } else if (operation.predicate != kAlways) {
      predicates_[issue.predicate] = written;
      latency = issue.row.truth_settling;
    }
    finished_ = std::max(finished_, issue.now + latency);
  }

  // Active barriers that guard any predicate the operation reads.
  [[gnu::noinline]] BarrierSet barriersOfTruths(const Operation& operation) const {
    TruthSet used = 0;
    for (const PredicateId id : {operation.guard, operation.condition}) used |= 1U << truths_[id / 2].place;
    BarrierSet found = 0;
    for (unsigned b = 0; b < kBarriers; ++b) found |= ((barriers_[b].truths & used) != 0 ? 1U : 0U) << b;
    return found;
  }

  // The second of two instructions, one cycle after the first. Results and barriers are one cycle later, too.
  void emitUpper(const Operation& operation, const OpcodeRow& row, std::uint32_t immediate) {
    const sass::Encoding& encoding = *row.upper;
    const std::uint64_t barriers = words_->back().high & kBarrierBits;
    Issue issue{.row = row,
                .now = issued_ + 1,
                .word = encoding.begin(operation.negated, operation.magnitude, operation.modifier, immediate)};
    issue.word.high |= barriers;
    for (std::size_t i = 0; i < operation.sources.size(); ++i) {
      const unsigned place = values_[operation.sources[i]].place;
      encoding.putSource(issue.word, i, row.facts.sources[i] == 1 ? place : upperOf(place));
    }
    const unsigned first = values_[operation.destination].place;
    encoding.putDestination(issue.word, upperOf(first));
    const auto numberOf = [&](PredicateId predicate) {
      return truths_[predicate / 2].place | (predicate & 1U) * sass::kNot;
    };
    if (operation.guard != kAlways) sass::putGuard(issue.word, numberOf(operation.guard));
    if (operation.condition != kAlways) encoding.putCondition(issue.word, numberOf(operation.condition));
    if (isVariable(row.facts)) {
      barriers_[barriers >> (sass::kWriteBarrierAt - 64) & 7].set = issue.now;
    } else {
      registers_[first].at = registers_[first + 1].at = issue.now;
      finished_ = std::max(finished_, issue.now + row.settling);
    }
    emit(issue);
  }

  // The first of `width` adjacent, aligned free registers; kZero if there are none.
  [[gnu::always_inline]] inline unsigned findFree(unsigned width) const {
    const RegisterSet quiet = free_ & ~(to_write_ | to_read_);
    if (width == 1) {
      const RegisterSet found = quiet != 0 ? quiet : free_;
      return found != 0 ? static_cast<unsigned>(std::countr_zero(found)) : sass::kZero;
    }
    for (RegisterSet found : {quiet, free_}) {
      found &= (found >> 1) & 0x5555555555555555;
      if (width == 4) found &= (found >> 2) & 0x1111111111111111;
      if (found != 0) return static_cast<unsigned>(std::countr_zero(found));
    }
    return sass::kZero;
  }

  // Allocates `width` registers for a value and returns the first. Those of a value that is never read stay free. kZero
  // if there are too few.
  [[gnu::always_inline]] inline unsigned take(ValueId value, unsigned width) {
    const unsigned first = findFree(width);
    if (first == sass::kZero) return first;
    Code::Operand* const parts = &values_[value];
    parts[0].place = first;
    if (width == 4) {
      for (unsigned part = 0; part < 4; ++part) {
        parts[part].place = first + part;
        if (parts[part].reads >= 0) free_ &= ~registerSet(first + part);
      }
    } else if (parts[0].reads >= 0) {
      free_ &= ~registerSet(first, width);
    }
    used_ |= registerSet(first, width);
    live_ += static_cast<int>(width);
    return first;
  }

  // Active barriers that guard any of these registers.
  [[gnu::always_inline]] inline BarrierSet barriersOf(RegisterSet written, RegisterSet read) const {
    BarrierSet found = 0;
    for (unsigned b = 0; b < kBarriers; ++b) {
      const RegisterSet common = (barriers_[b].written & written) | (barriers_[b].read & read);
      found |= (common != 0 ? 1U : 0U) << b;
    }
    return found;
  }

  [[gnu::always_inline]] inline void waitFor(BarrierSet barriers, Issue& issue) {
    issue.word.high |= std::uint64_t{barriers} << (sass::kWaitAt - 64);
    busy_ &= ~barriers;
    for (; barriers != 0; barriers &= barriers - 1) {
      Barrier& waited = barriers_[static_cast<std::size_t>(std::countr_zero(barriers))];
      issue.now = std::max(issue.now, waited.set + static_cast<Cycle>(sass::kBarrierDelay));
      waited = {};
    }
    to_write_ = to_read_ = 0;
    for (const Barrier& other : barriers_) {
      to_write_ |= other.written;
      to_read_ |= other.read;
    }
  }

  [[gnu::always_inline]] inline unsigned takeBarrier() const {
    if (busy_ != kAllBarriers) return static_cast<unsigned>(std::countr_one(busy_));
    unsigned best = 0;
    for (unsigned b = 1; b < kBarriers; ++b) {
      if (barriers_[b].set < barriers_[best].set) best = b;
    }
    return best;
  }

  // Stall and yield of an instruction depend on the next one, so they are set when that is emitted.
  [[gnu::always_inline]] inline void emit(const Issue& issue) {
    if (issued_ >= 0) {
      Cycle stall = issue.now - issued_;
      for (; stall > kLongestStall; stall -= kLongestStall) {
        words_->back().high |= bitsOfStall(kLongestStall, false);
        words_->push_back(sass::encode({.form = sass::Form::kNop, .control = {.stall = 0}}, architecture_));
      }
      words_->back().high |= bitsOfStall(static_cast<unsigned>(stall), stall < 4);
    }
    words_->push_back(issue.word);
    issued_ = issue.now;
  }

  // Records branches, and operations that may be their targets. Call after emit().
  void markControl(std::uint32_t at, const Operation& operation) {
    const auto position = static_cast<std::uint32_t>(words_->size() - first_ - 1);
    if (operation.synchronized) targets_.push_back({at, position});
    if (!isBranch(factsOf(operation.opcode))) return;
    spacing_ = sass::kBranchStall;
    if (operation.opcode == Opcode::kExit) exits_.push_back(position);
    if (operation.opcode == Opcode::kBra) branches_.push_back({operation.immediate, position});
    // An indexed branch adds an offset from the start of the code.
    if (operation.opcode == Opcode::kBrx) branches_.push_back({0, position});
  }

  // Records a call. Call after both of its instructions were emitted.
  void markCall(const Operation& operation) {
    const auto branch = static_cast<std::uint32_t>(words_->size() - first_ - 1);
    spacing_ = sass::kBranchStall;
    calls_.push_back(branch - 1);
    branches_.push_back({operation.immediate, branch});
  }

  void setBranchOffsets() const {
    for (const Place& branch : branches_) {
      const auto target = std::ranges::lower_bound(targets_, branch.operation, {}, &Place::operation);
      const bool is_start = target == targets_.end() || target->operation != branch.operation;
      sass::putBranchOffset((*words_)[first_ + branch.position],
                            ((is_start ? 0 : target->position) - (branch.position + 1)) * kWordBytes, architecture_);
    }
    for (const std::uint32_t call : calls_) {
      const std::uint64_t to = std::uint64_t{call + 2} * kWordBytes;
      (*words_)[first_ + call].low |= to * sass::encodingOf(sass::Form::kMovI).immediate_low;
    }
  }

  const OpcodeTable& table_;
  unsigned architecture_;
  /// By ValueId and by predicate number; machine registers and predicates map to themselves. They are treated as values
  /// are, since a branch on the kind of operand predicts badly.
  std::vector<Code::Operand> values_, truths_;
  RegisterSet free_ = 0;
  RegisterSet to_write_ = 0, to_read_ = 0;  ///< the union over all barriers
  RegisterSet just_read_ = 0;               ///< by the previous instruction, if it has fixed latency
  unsigned free_predicates_ = 0;
  RegisterSet used_ = 0;
  int live_ = 0, live_truths_ = 0;  ///< live registers and live predicates
  std::array<Written, kRz + 1> registers_{};
  std::array<Written, kPlaces> predicates_{};
  std::array<Barrier, kBarriers> barriers_{};
  BarrierSet busy_ = 0;
  Cycle issued_ = 0;    ///< issue cycle of the previous instruction
  Cycle spacing_ = 1;   ///< minimum distance from it to the next issue
  Cycle finished_ = 0;  ///< cycle at which all results of fixed latency are ready
  const Code* code_ = nullptr;
  std::uint32_t subroutines_ = 0;  ///< the first operation of subroutines
  RegisterSet of_subroutines_ = 0;
  std::vector<sass::Word>* words_ = nullptr;
  std::vector<std::uint32_t>* origins_ = nullptr;
  std::size_t first_ = 0;  ///< index in `words_` of the first instruction
  // Positions are instruction indices from `first_`.
  std::vector<Place> branches_;
  std::vector<Place> targets_;  ///< in ascending order
  std::vector<std::uint32_t> exits_;
  std::vector<std::uint32_t> calls_;  ///< the MOV of each; it returns to the second instruction after it
};

Allocator::Allocator(unsigned architecture) : state_(std::make_unique<State>(architecture)) {}
Allocator::~Allocator() = default;

bool Allocator::run(const Code& code, Scheduler& scheduler, const RegisterFile& file, std::uint32_t subroutines,
                    std::vector<sass::Word>& words) {
  return state_->run(code, scheduler, file, subroutines, words);
}
unsigned Allocator::registers() const { return static_cast<unsigned>(std::bit_width(state_->used_)); }
std::span<const std::uint32_t> Allocator::exits() const { return state_->exits_; }
void Allocator::setOrigins(std::vector<std::uint32_t>* origins) { state_->origins_ = origins; }

}  // namespace srjit::direct
