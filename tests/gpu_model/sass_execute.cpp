// Semantics of the instructions.
#include <bit>
#include <cfenv>
#include <cmath>
#include <limits>
#include <map>
#include <string_view>
#include <type_traits>

#include "tests/gpu_model/sass_machine.h"

namespace srjit {

using sass::Form;
using sass::Instruction;

namespace {

constexpr double kPi = 3.141592653589793238;

float flushed(float x) { return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0F, x) : x; }

float truncated(double exact) {
  const auto nearest = static_cast<float>(exact);
  return std::fabs(static_cast<double>(nearest)) > std::fabs(exact) ? std::nextafter(nearest, 0.0F) : nearest;
}

template <class T>
T rounded(sass::Round direction, T x) {
  switch (direction) {
    case sass::Round::kDown:
      return std::floor(x);
    case sass::Round::kUp:
      return std::ceil(x);
    case sass::Round::kTowardsZero:
      return std::trunc(x);
    default:
      return std::rint(x);
  }
}

// Supports only the modes that the direct tier uses.
template <class T>
T fused(std::uint8_t modifier, T a, T b, T c) {
  if ((modifier & 3) != sass::modifierOf(sass::Round::kUp)) return std::fma(a, b, c);
  // The compiler does not model rounding modes: volatile accesses keep the call between the two mode changes.
  std::fesetround(FE_UPWARD);
  const volatile T x = a, y = b, z = c;
  const volatile T result = std::fma(x, y, z);
  std::fesetround(FE_TONEAREST);
  return result;
}

bool isLess(float a, float b) { return a == b ? std::signbit(a) && !std::signbit(b) : a < b; }

float extreme(float a, float b, bool largest, bool propagates) {
  if (std::isnan(a) || std::isnan(b)) {
    if (propagates || (std::isnan(a) && std::isnan(b))) return std::numeric_limits<float>::quiet_NaN();
    return std::isnan(a) ? b : a;
  }
  return isLess(a, b) != largest ? a : b;
}

template <class T>
bool compared(unsigned how, T a, T b) {
  bool unordered = false;
  if constexpr (std::is_floating_point_v<T>) unordered = std::isnan(a) || std::isnan(b);
  if (unordered) return (how & 8) != 0;
  return ((how & 1) != 0 && a < b) || ((how & 2) != 0 && a == b) || ((how & 4) != 0 && a > b);
}

std::uint32_t lop3(unsigned table, std::uint32_t a, std::uint32_t b, std::uint32_t c) {
  std::uint32_t result = 0;
  for (unsigned row = 0; row < 8; ++row) {
    if ((table >> row & 1) == 0) continue;
    result |= ((row & 4) != 0 ? a : ~a) & ((row & 2) != 0 ? b : ~b) & ((row & 1) != 0 ? c : ~c);
  }
  return result;
}

double ofUpperWord(float word) {
  return std::bit_cast<double>(std::uint64_t{std::bit_cast<std::uint32_t>(word)} << 32);
}

// The upper word of x; subnormal numbers are zeros.
float upperWordOf(double x) {
  if (std::fpclassify(x) == FP_SUBNORMAL) x = std::copysign(0.0, x);
  return std::bit_cast<float>(static_cast<std::uint32_t>(std::bit_cast<std::uint64_t>(x) >> 32));
}

}  // namespace

/// What an operation reads of one lane.
template <class T>
struct SassMachine::Operands {
  T a, b, c;
  bool chosen;            ///< by the condition
  std::uint8_t modifier;  ///< of the instruction
};

float specialFunction(sass::Mufu function, float x) {
  if (function == sass::Mufu::kReciprocalOfDouble) return upperWordOf(1 / ofUpperWord(x));
  if (function == sass::Mufu::kReciprocalRootOfDouble) return upperWordOf(1 / std::sqrt(ofUpperWord(x)));
  x = flushed(x);
  const auto d = static_cast<double>(x);
  const auto of = [](double value) { return flushed(static_cast<float>(value)); };
  switch (function) {
    case sass::Mufu::kCos:
      return of(std::cos(2 * kPi * d));
    case sass::Mufu::kSin:
      return of(std::sin(2 * kPi * d));
    case sass::Mufu::kExp2:
      return of(std::exp2(d));
    case sass::Mufu::kLog2:
      return of(std::log2(d));
    case sass::Mufu::kReciprocal:
      return of(1 / d);
    case sass::Mufu::kReciprocalRoot:
      return of(1 / std::sqrt(d));
    case sass::Mufu::kRoot:
      return of(std::sqrt(d));
    case sass::Mufu::kTanh:
      return of(std::tanh(d));
    default:
      return x;
  }
}

namespace {

using Float = SassMachine::Operands<float>;
using Double = SassMachine::Operands<double>;
using Integer = SassMachine::Operands<std::uint32_t>;

template <class T>
using Operation = T (*)(const SassMachine::Operands<T>&);

float multiplied(const Float& x) {
  if ((x.modifier & sass::kFlush) != 0) return flushed(flushed(x.a) * flushed(x.b));
  const double exact = static_cast<double>(x.a) * static_cast<double>(x.b);
  return (x.modifier & 3) == 3 ? truncated(exact) : static_cast<float>(exact);
}

std::uint32_t shifted(std::uint32_t x, std::uint32_t bits, bool left) {
  if (bits > 31) return 0;
  return left ? x << bits : x >> bits;
}

// Operations by the names in instructions.def. An immediate is the first operand that no register gives.
template <class T>
std::map<std::string_view, Operation<T>> operationsOf() {
  if constexpr (std::is_same_v<T, float>) {
    return {
        {"FADD", [](const Float& x) { return x.a + x.b; }},
        {"FMUL", multiplied},
        {"FFMA", [](const Float& x) { return fused(x.modifier, x.a, x.b, x.c); }},
        {"FMNMX", [](const Float& x) { return extreme(x.a, x.b, !x.chosen, (x.modifier & sass::kPropagate) != 0); }},
        {"FSEL", [](const Float& x) { return x.chosen ? x.a : x.b; }},
        {"MUFU", [](const Float& x) { return specialFunction(static_cast<sass::Mufu>(x.modifier), x.a); }},
        {"FRND", [](const Float& x) { return rounded(static_cast<sass::Round>(x.modifier & 3), x.a); }}};
  } else if constexpr (std::is_same_v<T, double>) {
    return {{"DADD", [](const Double& x) { return x.a + x.b; }},
            {"DMUL", [](const Double& x) { return x.a * x.b; }},
            {"DFMA", [](const Double& x) { return fused(x.modifier, x.a, x.b, x.c); }},
            {"FRND.F64", [](const Double& x) { return rounded(static_cast<sass::Round>(x.modifier & 3), x.a); }}};
  } else {
    return {{"SEL", [](const Integer& x) { return x.chosen ? x.a : x.b; }},
            {"MOV", [](const Integer& x) { return x.a; }},
            {"LOP3.LUT", [](const Integer& x) { return lop3(x.modifier, x.a, x.b, x.c); }},
            {"SHF.L.U32", [](const Integer& x) { return shifted(x.a, x.b, true); }},
            {"SHF.R.U32.HI", [](const Integer& x) { return shifted(x.a, x.b, false); }},
            {"SHF.R.S32.HI",
             [](const Integer& x) { return static_cast<std::uint32_t>(static_cast<std::int32_t>(x.a) >> x.b); }},
            {"IADD3", [](const Integer& x) { return x.a + x.b + x.c; }},
            {"IMAD", [](const Integer& x) { return x.a * x.b + x.c; }}};
  }
}

/// Null if the form computes no number of this type from operands of a lane.
template <class T>
Operation<T> operationOf(Form form) {
  static const auto kOperations = [] {
    const auto names = operationsOf<T>();
    std::array<Operation<T>, sass::kForms> operations{};
    for (std::size_t f = 0; f < operations.size(); ++f) {
      const auto found = names.find(sass::infoOf(static_cast<Form>(f)).name);
      if (found != names.end()) operations[f] = found->second;
    }
    return operations;
  }();
  return kOperations[static_cast<std::size_t>(form)];
}

}  // namespace

// Perturbs x by up to `inaccuracy_` units in the last place, by a hash.
float SassMachine::inaccurate(float x) {
  if (!std::isnormal(x)) return x;
  hash_ = hash_ * 6364136223846793005 + 1442695040888963407;
  const std::uint32_t offset = static_cast<std::uint32_t>(hash_ >> 33) % (2 * inaccuracy_ + 1) - inaccuracy_;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) + offset);
}

template <class T>
T SassMachine::operand(const Instruction& i, unsigned slot, unsigned lane) const {
  const bool in_register = sass::infoOf(i.form).source_registers[slot] != 0;
  const bool is_negated = in_register && (i.negated >> slot & 1) != 0;
  if constexpr (std::is_same_v<T, std::uint32_t>) {
    const std::uint32_t x = in_register ? bits(i.sources[slot], lane) : i.immediate;
    return is_negated ? -x : x;
  } else {
    T x = 0;
    if constexpr (std::is_same_v<T, float>) {
      x = std::bit_cast<float>(in_register ? bits(i.sources[slot], lane) : i.immediate);
    } else {
      x = std::bit_cast<double>(in_register ? wideBits(i.sources[slot], lane) : std::uint64_t{i.immediate} << 32);
    }
    if (in_register && (i.magnitude >> slot & 1) != 0) x = std::fabs(x);
    return is_negated ? -x : x;
  }
}

template <class T>
void SassMachine::compute(const Instruction& i, std::uint32_t active) {
  const Operation<T> operation = operationOf<T>(i.form);
  const std::uint32_t condition = predicate(i.condition);
  for (unsigned lane = 0; lane < kLanes; ++lane) {
    T result = operation({operand<T>(i, 0, lane), operand<T>(i, 1, lane), operand<T>(i, 2, lane),
                          (condition >> lane & 1) != 0, i.modifier});
    if constexpr (std::is_same_v<T, float>) {
      if (i.form == Form::kMufuR && inaccuracy_ != 0) result = inaccurate(result);
    }
    if ((active >> lane & 1) != 0) writeNumber(i.destination, lane, result);
  }
}

template <class T>
void SassMachine::compare(const Instruction& i, std::uint32_t active) {
  const std::uint32_t condition = predicate(i.condition);
  const bool joins_by_or = (i.modifier & static_cast<unsigned>(sass::Combine::kOr)) != 0;
  std::uint32_t truth = 0;
  for (unsigned lane = 0; lane < kLanes; ++lane) {
    const bool holds = compared(i.modifier & 15, operand<T>(i, 0, lane), operand<T>(i, 1, lane));
    const bool chosen = (condition >> lane & 1) != 0;
    if (joins_by_or ? holds || chosen : holds && chosen) truth |= 1U << lane;
  }
  writePredicate(i.predicate, truth, active);
}

void SassMachine::execute(const Instruction& i) {
  const std::uint32_t active = predicate(i.guard);
  const sass::FormInfo& info = sass::infoOf(i.form);
  if (info.pipe == sass::Pipe::kControl) return executeControl(i, active);
  if (info.pipe == sass::Pipe::kMemory) return executeMemory(i, active);
  if (operationOf<float>(i.form) != nullptr) return compute<float>(i, active);
  if (operationOf<double>(i.form) != nullptr) return compute<double>(i, active);
  if (operationOf<std::uint32_t>(i.form) != nullptr) return compute<std::uint32_t>(i, active);
  if (info.name == "FSETP") return compare<float>(i, active);
  if (info.name == "DSETP") return compare<double>(i, active);
  if (info.name == "ISETP") return compare<std::uint32_t>(i, active);
  executeOther(i, active);
}

void SassMachine::executeOther(const Instruction& i, std::uint32_t active) {
  if (i.form == Form::kUldcDescriptor || i.form == Form::kLdcuDescriptor) return;
  if (i.form == Form::kVoteAny) {
    if (active != ~0U) fault("a vote without all lanes");
    return writePredicate(i.predicate, predicate(i.condition) != 0 ? ~0U : 0, active);
  }
  for (unsigned lane = 0; lane < kLanes; ++lane) {
    if ((active >> lane & 1) == 0) continue;
    switch (i.form) {
      case Form::kImadWideURRR:
      case Form::kImadWideURIR: {
        const std::uint64_t factor = operand<std::uint32_t>(i, 1, lane);
        writeNumber(i.destination, lane, bits(i.sources[0], lane) * factor + wideBits(i.sources[2], lane));
        break;
      }
      case Form::kS2rTid:
        write(i.destination, lane, warp_ * kLanes + lane);
        break;
      case Form::kS2rCtaX:
        write(i.destination, lane, block_x_);
        break;
      case Form::kS2rCtaY:
        write(i.destination, lane, block_y_);
        break;
      default:
        fault("no model of this instruction");
    }
  }
}

void SassMachine::executeMemory(const Instruction& i, std::uint32_t active) {
  Lanes sent{};
  for (unsigned lane = 0; lane < kLanes; ++lane) sent[lane] = bits(i.sources[0], lane);
  const unsigned count = sass::infoOf(i.form).result_registers;
  const auto offset = static_cast<std::int32_t>(i.immediate);
  if (i.form == Form::kShflBfly && active != ~0U) fault("a shuffle without all lanes");
  for (unsigned lane = 0; lane < kLanes; ++lane) {
    if ((active >> lane & 1) == 0) continue;
    if (i.form == Form::kShflBfly) {
      write(i.destination, lane, sent[lane ^ i.immediate]);
    } else if (i.form == Form::kLdc || i.form == Form::kLdc64) {
      for (unsigned part = 0; part < count; ++part) {
        write(i.destination + part, lane, constant(sent[lane] + i.immediate + 4 * part));
      }
    } else {
      const std::uint64_t address = wideBits(i.sources[0], lane) + static_cast<std::uint64_t>(std::int64_t{offset});
      if (i.form == Form::kStg || i.form == Form::kStg64) {
        const unsigned stored = sass::infoOf(i.form).source_registers[1];
        if (address % (4 * stored) != 0) fault("a misaligned store");
        const std::uint64_t value = wideBits(i.sources[1], lane);
        for (unsigned part = 0; part < stored; ++part) {
          memory_.store(address + 4 * part, static_cast<std::uint32_t>(value >> (32 * part)));
        }
        continue;
      }
      if (address % (4 * count) != 0) fault("a misaligned load");
      std::array<std::uint32_t, 4> loaded{};
      for (unsigned part = 0; part < count; ++part) loaded[part] = memory_.load(address + 4 * part);
      for (unsigned part = 0; part < count; ++part) write(i.destination + part, lane, loaded[part]);
    }
  }
}

void SassMachine::executeControl(const Instruction& i, std::uint32_t active) {
  if (i.form == Form::kNop) return;
  if (active != 0 && active != ~0U) fault("the warp diverges");
  if (active == 0) return;
  std::int64_t target = static_cast<std::int64_t>(at_ + 1) * 16 + static_cast<std::int32_t>(i.immediate);
  switch (i.form) {
    case Form::kExit:
      is_done_ = true;
      return;
    case Form::kBrx:
      for (unsigned lane = 1; lane < kLanes; ++lane) {
        if (wideBits(i.sources[0], lane) != wideBits(i.sources[0], 0)) fault("the warp diverges");
      }
      target += static_cast<std::int64_t>(wideBits(i.sources[0], 0));
      break;
    default:
      break;
  }
  if (target < 0 || target % 16 != 0) fault("a branch to no instruction");
  next_ = static_cast<std::size_t>(target / 16);
}

}  // namespace srjit
