// Decodes any bytes to direct code and a mutation of it. Invariants: the verifier finds every hazard that a mutation
// makes by construction, and every one that the model of a warp runs into.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "compiler/sass/cubin.h"
#include "tests/compiler/direct/emitted.h"
#include "tests/compiler/direct/run.h"
#include "tests/fuzz/harness/direct_input.h"

namespace {

using namespace srjit;
using fuzz::ByteReader;
using fuzz::GraphInput;
using fuzz::require;
using sass::Form;
using sass::Instruction;

constexpr std::size_t kNowhere = ~std::size_t{0};
/// Cycles after which no fixed delay is left.
constexpr std::size_t kReach = 16;

bool branches(const Instruction& i) { return i.form == Form::kBra || i.form == Form::kBrx || i.form == Form::kExit; }
/// Its halves are ready at different times, which registerDelay() does not tell apart.
bool isWideMultiply(const Instruction& i) { return i.form == Form::kImadWideURRR || i.form == Form::kImadWideURIR; }
bool covers(unsigned first, unsigned count, unsigned r) {
  return first != sass::kZero && r >= first && r < first + count;
}
bool reads(const Instruction& i, unsigned r) {
  for (std::size_t s = 0; s < 3; ++s) {
    if (covers(i.sources[s], sass::infoOf(i.form).source_registers[s], r)) return true;
  }
  return false;
}
bool writes(const Instruction& i, unsigned r) {
  return covers(i.destination, sass::infoOf(i.form).result_registers, r);
}
bool hasResult(const Instruction& i) {
  return i.destination != sass::kZero && sass::infoOf(i.form).result_registers > 0;
}

/// Code, and where in it the path goes on to the next instruction.
class Mutant {
 public:
  explicit Mutant(Emitted emitted) : emitted_(std::move(emitted)) {}

  std::size_t size() const { return emitted_.code.size(); }
  Instruction& at(std::size_t i) { return *emitted_.code[i]; }
  const Emitted& emitted() const { return emitted_; }
  unsigned architecture() const { return emitted_.architecture; }
  bool isVariable(std::size_t i) { return sass::timingOf(at(i).form, architecture()) == sass::Timing::kVariable; }

  /// The first instruction behind `begin` for which `stops` holds, if the path leads there without a branch.
  template <class Stops>
  std::size_t next(std::size_t begin, const Stops& stops) {
    for (std::size_t i = begin + 1; i < size() && !branches(at(i - 1)); ++i) {
      if (stops(at(i))) return i;
    }
    return kNowhere;
  }
  /// Leaves as few cycles as there can be between two instructions.
  void hurry(std::size_t from, std::size_t to) {
    for (std::size_t i = from; i < to; ++i) at(i).control.stall = 1;
  }

 private:
  Emitted emitted_;
};

// Each makes a hazard at or behind an instruction, and tells whether it could.

/// A result of fixed latency is read too early.
bool readTooEarly(Mutant& code, std::size_t writer) {
  Instruction& i = code.at(writer);
  if (code.isVariable(writer) || !hasResult(i) || isWideMultiply(i)) return false;
  const std::size_t reader = code.next(
      writer, [&](const Instruction& other) { return reads(other, i.destination) || writes(other, i.destination); });
  if (reader == kNowhere || !reads(code.at(reader), i.destination) || isWideMultiply(code.at(reader))) return false;
  if (reader - writer >= sass::registerDelay(i.form, code.at(reader).form)) return false;
  code.hurry(writer, reader);
  return true;
}

/// The next instruction reads the register just written.
bool readAtOnce(Mutant& code, std::size_t writer) {
  Instruction& i = code.at(writer);
  if (writer + 1 >= code.size() || branches(i) || code.isVariable(writer) || !hasResult(i) || isWideMultiply(i)) {
    return false;
  }
  Instruction& reader = code.at(writer + 1);
  const sass::FormInfo& info = sass::infoOf(reader.form);
  if (isWideMultiply(reader)) return false;
  for (std::size_t s = 0; s < 3; ++s) {
    if (info.source_registers[s] != 1 || reader.sources[s] == sass::kZero) continue;
    if (sass::registerDelay(i.form, reader.form) <= 1) return false;
    reader.sources[s] = i.destination;
    code.hurry(writer, writer + 1);
    return true;
  }
  return false;
}

bool predicateTooEarly(Mutant& code, std::size_t writer) {
  Instruction& i = code.at(writer);
  if (code.isVariable(writer) || !sass::infoOf(i.form).writes_predicate || i.predicate == sass::kTrue) return false;
  const auto isRead = [&](const Instruction& other, bool as_guard) {
    const std::uint8_t predicate = as_guard ? other.guard : other.condition;
    return (as_guard || sass::infoOf(other.form).reads_condition) && (predicate & 7) == i.predicate;
  };
  const std::size_t reader = code.next(writer, [&](const Instruction& other) {
    return isRead(other, true) || isRead(other, false) ||
           (sass::infoOf(other.form).writes_predicate && other.predicate == i.predicate);
  });
  if (reader == kNowhere) return false;
  const Instruction& other = code.at(reader);
  if (!isRead(other, true) && !isRead(other, false)) return false;
  if (reader - writer >= sass::predicateDelay(i.form, other.form, isRead(other, true), code.architecture()))
    return false;
  code.hurry(writer, reader);
  return true;
}

/// Nobody waits for a result of variable latency: its barrier is gone, or all waits for it.
bool neverWaitedFor(Mutant& code, std::size_t writer, bool drops_barrier) {
  Instruction& i = code.at(writer);
  if (!code.isVariable(writer) || !hasResult(i)) return false;
  const std::size_t user = code.next(
      writer, [&](const Instruction& other) { return reads(other, i.destination) || writes(other, i.destination); });
  if (user == kNowhere) return false;
  if (drops_barrier) {
    i.control.write_barrier = sass::kNoBarrier;
    return true;
  }
  if (i.control.write_barrier == sass::kNoBarrier) return false;
  for (std::size_t at = writer + 1; at <= user; ++at) {
    code.at(at).control.wait_mask &= static_cast<std::uint8_t>(~(1U << i.control.write_barrier));
  }
  return true;
}

/// A source is overwritten while an instruction of variable latency may still read it.
bool overwrittenWhileRead(Mutant& code, std::size_t reader) {
  Instruction& i = code.at(reader);
  if (!code.isVariable(reader)) return false;
  const std::size_t writer = code.next(reader, [&](const Instruction& other) {
    for (std::size_t s = 0; s < 3; ++s) {
      if (sass::infoOf(i.form).source_registers[s] > 0 && i.sources[s] != sass::kZero && writes(other, i.sources[s])) {
        return true;
      }
    }
    return false;
  });
  if (writer == kNowhere) return false;
  i.control.read_barrier = i.control.write_barrier = sass::kNoBarrier;
  return true;
}

bool waitedForTooEarly(Mutant& code, std::size_t setter) {
  sass::Control& control = code.at(setter).control;
  const std::uint8_t barrier = control.write_barrier != sass::kNoBarrier ? control.write_barrier : control.read_barrier;
  if (barrier == sass::kNoBarrier || branches(code.at(setter)) || setter + 1 >= code.size()) return false;
  control.stall = 1;
  code.at(setter + 1).control.wait_mask |= static_cast<std::uint8_t>(1U << barrier);
  return true;
}

/// A register that is not declared, or a pair that is not aligned.
bool wrongRegister(Mutant& code, std::size_t at, std::uint8_t what) {
  Instruction& i = code.at(at);
  const sass::FormInfo& info = sass::infoOf(i.form);
  const auto change = [&](std::uint8_t& number, unsigned count) {
    if (number == sass::kZero || count == 0 || (what >= 128 && count == 1)) return false;
    number = what >= 128 ? static_cast<std::uint8_t>(number + 1)
                         : static_cast<std::uint8_t>((code.emitted().registers + 3) / 4 * 4 + what % 8 * 4);
    return true;
  };
  if (what % 4 == 3) return change(i.destination, info.result_registers);
  return change(i.sources[what % 4], info.source_registers[what % 4]);
}

bool wrongBranch(Mutant& code, std::size_t at, std::uint8_t what) {
  Instruction& i = code.at(at);
  const bool is_last = i.form == Form::kBra && i.immediate == 0U - std::uint32_t{sizeof(sass::Word)};
  if (!branches(i) || is_last) return false;
  if (what % 2 == 0) {
    i.control.stall = static_cast<std::uint8_t>(what / 2 % sass::kBranchStall);
    return true;
  }
  if (i.form != Form::kBra) return false;
  i.immediate = static_cast<std::uint32_t>(sizeof(sass::Word) * (code.size() + what));
  return true;
}

/// The first instruction from `begin` on at which `change` made a hazard; the search wraps around.
template <class Change>
std::optional<std::size_t> makeHazard(Mutant& code, std::size_t begin, const Change& change) {
  for (std::size_t n = 0; n < code.size(); ++n) {
    const std::size_t at = (begin + n) % code.size();
    if (change(at)) return at;
  }
  return std::nullopt;
}

void checkConstructed(const Emitted& emitted, ByteReader& options) {
  Mutant code(emitted);
  const std::uint8_t kind = options.byte(), what = options.byte();
  const std::size_t begin = options.little<std::uint16_t>() % code.size();
  const auto at = makeHazard(code, begin, [&](std::size_t i) {
    switch (kind % 9) {
      case 0:
        return readTooEarly(code, i);
      case 1:
        return readAtOnce(code, i);
      case 2:
        return predicateTooEarly(code, i);
      case 3:
      case 4:
        return neverWaitedFor(code, i, kind % 9 == 3);
      case 5:
        return overwrittenWhileRead(code, i);
      case 6:
        return waitedForTooEarly(code, i);
      case 7:
        return wrongRegister(code, i, what);
      default:
        return wrongBranch(code, i, what);
    }
  });
  if (!at) return;
  require(!code.emitted().hazards(1).empty(), "a hazard by construction is found",
          [&] { return fmt::format("kind {} at {}: {}", kind % 9, *at, sass::print(code.at(*at), true)); });
}

/// Changes what the scheduler decided about one instruction. Of an instruction with both barriers, the model wants that
/// of the reads to be waited for, while either is enough: so none gets both.
void changeControl(sass::Control& control, ByteReader& bytes) {
  const std::uint8_t what = bytes.byte(), value = bytes.byte();
  if (what % 4 == 0) {
    control.stall = static_cast<std::uint8_t>(1 + value % 15);
  } else if (what % 4 == 1) {
    control.wait_mask = static_cast<std::uint8_t>(value % 64);
  } else {
    std::uint8_t& barrier = what % 4 == 2 ? control.write_barrier : control.read_barrier;
    const std::uint8_t other = what % 4 == 2 ? control.read_barrier : control.write_barrier;
    barrier = value % 7 == 6 || other != sass::kNoBarrier ? sass::kNoBarrier : static_cast<std::uint8_t>(value % 7);
  }
}

bool isTiming(std::string_view fault) {
  constexpr std::string_view kRules[] = {"before its barrier", "too early", "still to be", "right after it was read"};
  return std::ranges::any_of(kRules, [&](std::string_view rule) { return fault.find(rule) != fault.npos; });
}

/// The model of a warp runs code whose schedule has changed somewhere.
template <class T>
void checkRun(const Dag& dag, const DirectPart& part, DirectImage image, const DirectOptions& options,
              ByteReader& bytes) {
  std::vector<std::optional<Instruction>> code = sass::decodeAll(image.words, options.architecture);
  for (int changes = 1 + bytes.byte() % 3; changes > 0; --changes) {
    const std::size_t at = bytes.little<std::uint16_t>() % code.size();
    const std::size_t begin = at < kReach ? 0 : at - kReach, end = std::min(at + kReach, code.size());
    const bool is_near =
        std::any_of(code.begin() + static_cast<std::ptrdiff_t>(begin), code.begin() + static_cast<std::ptrdiff_t>(end),
                    [](const auto& i) { return isWideMultiply(*i); });
    if (is_near) continue;
    changeControl(code[at]->control, bytes);
    image.words[at] = sass::encode(*code[at], options.architecture);
  }
  auto data = DirectData<T>::random(33, GraphInput::kVariables, Spread::kTame, 1);
  std::string fault;
  try {
    runDirect(dag, part, image, options, data, {.row_blocks = 1, .warps = 1});
  } catch (const SassFault& found) {
    fault = found.what();
  }
  if (!isTiming(fault)) return;
  require(!Emitted(image, options.architecture).hazards(1).empty(), "a fault of the model is found", fault);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  GraphInput input(data, size);
  const DirectOptions options = fuzz::directOptionsFrom(input.options);
  ByteReader mutation = input.mutation();
  const Dag dag = fuzz::directGraphFrom(input.batch(2), options);
  auto emitter = DirectEmitter::create(options).value();
  const DirectPart part = emitter.emit(dag);
  const DirectImage image = joinDirect(std::span(&part, 1), options).value();
  if (image.groups.empty()) return 0;  // all roots were refused
  checkConstructed(Emitted(image, options.architecture), mutation);
  if (options.precision == Precision::kF32) {
    checkRun<float>(dag, part, image, options, mutation);
  } else {
    checkRun<double>(dag, part, image, options, mutation);
  }
  return 0;
}
