// Semantics of the instructions.
#include <bit>
#include <cfenv>
#include <cmath>
#include <limits>
#include <optional>
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

bool joined(const Instruction& i, bool truth, bool condition) {
  return (i.modifier & static_cast<unsigned>(sass::Combine::kOr)) != 0 ? truth || condition : truth && condition;
}

std::uint32_t lop3(unsigned table, std::uint32_t a, std::uint32_t b, std::uint32_t c) {
  std::uint32_t result = 0;
  for (unsigned row = 0; row < 8; ++row) {
    if ((table >> row & 1) == 0) continue;
    result |= ((row & 4) != 0 ? a : ~a) & ((row & 2) != 0 ? b : ~b) & ((row & 1) != 0 ? c : ~c);
  }
  return result;
}

// Of instructions whose result depends on the operands of the lane alone; nothing for others.
std::optional<std::uint32_t> integerResult(const Instruction& i, std::uint32_t a, std::uint32_t b, std::uint32_t c,
                                           bool chosen) {
  switch (i.form) {
    case Form::kSelRR:
      return chosen ? a : b;
    case Form::kSelRI:
      return chosen ? a : i.immediate;
    case Form::kMovR:
      return a;
    case Form::kMovI:
      return i.immediate;
    case Form::kLop3RRR:
      return lop3(i.modifier, a, b, c);
    case Form::kLop3RIR:
      return lop3(i.modifier, a, i.immediate, c);
    case Form::kShlRI:
      return i.immediate > 31 ? 0 : a << i.immediate;
    case Form::kShrRI:
      return i.immediate > 31 ? 0 : a >> i.immediate;
    case Form::kSarRI:
      return static_cast<std::uint32_t>(static_cast<std::int32_t>(a) >> i.immediate);
    case Form::kIAdd3RRR:
      return ((i.negated & 1) != 0 ? -a : a) + ((i.negated & 2) != 0 ? -b : b) + ((i.negated & 4) != 0 ? -c : c);
    case Form::kIAdd3RIR:
      return ((i.negated & 1) != 0 ? -a : a) + i.immediate + ((i.negated & 4) != 0 ? -c : c);
    case Form::kImadRRR:
      return a * b + c;
    case Form::kImadRIR:
      return a * i.immediate + c;
    default:
      return std::nullopt;
  }
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

// Perturbs x by up to `inaccuracy_` units in the last place, by a hash.
float SassMachine::inaccurate(float x) {
  if (!std::isnormal(x)) return x;
  hash_ = hash_ * 6364136223846793005 + 1442695040888963407;
  const std::uint32_t offset = static_cast<std::uint32_t>(hash_ >> 33) % (2 * inaccuracy_ + 1) - inaccuracy_;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) + offset);
}

float SassMachine::number(const Instruction& i, unsigned slot, unsigned lane) const {
  float x = std::bit_cast<float>(bits(i.sources[slot], lane));
  if ((i.magnitude >> slot & 1) != 0) x = std::fabs(x);
  if ((i.negated >> slot & 1) != 0) x = std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) ^ 0x80000000);
  return x;
}

double SassMachine::wideNumber(const Instruction& i, unsigned slot, unsigned lane) const {
  auto x = std::bit_cast<double>(wideBits(i.sources[slot], lane));
  if ((i.magnitude >> slot & 1) != 0) x = std::fabs(x);
  return (i.negated >> slot & 1) != 0 ? -x : x;
}

void SassMachine::execute(const Instruction& i) {
  const std::uint32_t active = predicate(i.guard);
  if (i.form == Form::kFRndDouble) return executeDouble(i, active);
  switch (sass::infoOf(i.form).pipe) {
    case sass::Pipe::kDouble:
      return executeDouble(i, active);
    case sass::Pipe::kControl:
      return executeControl(i, active);
    case sass::Pipe::kMemory:
      return executeMemory(i, active);
    default:
      break;
  }
  switch (i.form) {
    case Form::kFAddRR:
    case Form::kFAddRI:
    case Form::kFMulRR:
    case Form::kFMulRI:
    case Form::kFFmaRRR:
    case Form::kFFmaRIR:
    case Form::kFFmaRRI:
    case Form::kFMnMxRR:
    case Form::kFMnMxRI:
    case Form::kFSetPRR:
    case Form::kFSetPRI:
    case Form::kFSelRR:
    case Form::kFSelRI:
    case Form::kMufuR:
    case Form::kFRndR:
      return executeFloat(i, active);
    default:
      return executeInteger(i, active);
  }
}

void SassMachine::executeFloat(const Instruction& i, std::uint32_t active) {
  const std::uint32_t condition = predicate(i.condition);
  std::uint32_t truth = 0;
  for (unsigned lane = 0; lane < kLanes; ++lane) {
    const bool chosen = (condition >> lane & 1) != 0;
    const auto immediate = std::bit_cast<float>(i.immediate);
    const float a = number(i, 0, lane), b = number(i, 1, lane), c = number(i, 2, lane);
    float result = 0;
    switch (i.form) {
      case Form::kFAddRR:
        result = a + b;
        break;
      case Form::kFAddRI:
        result = a + immediate;
        break;
      case Form::kFMulRR:
      case Form::kFMulRI: {
        const double exact = static_cast<double>(a) * static_cast<double>(i.form == Form::kFMulRR ? b : immediate);
        result = (i.modifier & 3) == 3 ? truncated(exact) : static_cast<float>(exact);
        if ((i.modifier & sass::kFlush) != 0) {
          result = flushed(flushed(a) * flushed(i.form == Form::kFMulRR ? b : immediate));
        }
        break;
      }
      case Form::kFFmaRRR:
        result = fused(i.modifier, a, b, c);
        break;
      case Form::kFFmaRIR:
        result = fused(i.modifier, a, immediate, c);
        break;
      case Form::kFFmaRRI:
        result = fused(i.modifier, a, b, immediate);
        break;
      case Form::kFMnMxRR:
      case Form::kFMnMxRI:
        result = extreme(a, i.form == Form::kFMnMxRR ? b : immediate, !chosen, (i.modifier & sass::kPropagate) != 0);
        break;
      case Form::kFSelRR:
        result = chosen ? a : b;
        break;
      case Form::kFSelRI:
        result = chosen ? a : immediate;
        break;
      case Form::kMufuR:
        result = specialFunction(static_cast<sass::Mufu>(i.modifier), a);
        if (inaccuracy_ != 0) result = inaccurate(result);
        break;
      case Form::kFRndR:
        result = rounded(static_cast<sass::Round>(i.modifier & 3), a);
        break;
      default:
        if (joined(i, compared(i.modifier & 15, a, i.form == Form::kFSetPRR ? b : immediate), chosen)) {
          truth |= 1U << lane;
        }
        continue;
    }
    if ((active >> lane & 1) != 0) write(i.destination, lane, std::bit_cast<std::uint32_t>(result));
  }
  if (i.form == Form::kFSetPRR || i.form == Form::kFSetPRI) writePredicate(i.predicate, truth, active);
}

void SassMachine::executeDouble(const Instruction& i, std::uint32_t active) {
  const std::uint32_t condition = predicate(i.condition);
  const auto immediate = std::bit_cast<double>(std::uint64_t{i.immediate} << 32);
  std::uint32_t truth = 0;
  for (unsigned lane = 0; lane < kLanes; ++lane) {
    const double a = wideNumber(i, 0, lane), b = wideNumber(i, 1, lane), c = wideNumber(i, 2, lane);
    double result = 0;
    switch (i.form) {
      case Form::kDAddRR:
        result = a + b;
        break;
      case Form::kDAddRI:
        result = a + immediate;
        break;
      case Form::kDMulRR:
        result = a * b;
        break;
      case Form::kDMulRI:
        result = a * immediate;
        break;
      case Form::kDFmaRRR:
        result = fused(i.modifier, a, b, c);
        break;
      case Form::kDFmaRIR:
        result = fused(i.modifier, a, immediate, c);
        break;
      case Form::kDFmaRRI:
        result = fused(i.modifier, a, b, immediate);
        break;
      case Form::kFRndDouble:
        result = rounded(static_cast<sass::Round>(i.modifier & 3), a);
        break;
      default:
        if (joined(i, compared(i.modifier & 15, a, i.form == Form::kDSetPRR ? b : immediate),
                   (condition >> lane & 1) != 0)) {
          truth |= 1U << lane;
        }
        continue;
    }
    if ((active >> lane & 1) == 0) continue;
    const auto bits = std::bit_cast<std::uint64_t>(result);
    write(i.destination, lane, static_cast<std::uint32_t>(bits));
    write(i.destination + 1U, lane, static_cast<std::uint32_t>(bits >> 32));
  }
  if (sass::infoOf(i.form).writes_predicate) writePredicate(i.predicate, truth, active);
}

void SassMachine::executeInteger(const Instruction& i, std::uint32_t active) {
  const std::uint32_t condition = predicate(i.condition);
  if (i.form == Form::kVoteAny) {
    if (active != ~0U) fault("a vote without all lanes");
    return writePredicate(i.predicate, condition != 0 ? ~0U : 0, active);
  }
  std::uint32_t truth = 0;
  for (unsigned lane = 0; lane < kLanes; ++lane) {
    const bool chosen = (condition >> lane & 1) != 0;
    const std::uint32_t a = bits(i.sources[0], lane), b = bits(i.sources[1], lane), c = bits(i.sources[2], lane);
    std::uint32_t result = 0;
    switch (i.form) {
      case Form::kImadWideURRR:
      case Form::kImadWideURIR: {
        const std::uint64_t factor = i.form == Form::kImadWideURRR ? b : i.immediate;
        const std::uint64_t wide = a * factor + wideBits(i.sources[2], lane);
        result = static_cast<std::uint32_t>(wide);
        if ((active >> lane & 1) != 0) write(i.destination + 1U, lane, static_cast<std::uint32_t>(wide >> 32));
        break;
      }
      case Form::kISetPURR:
      case Form::kISetPURI:
        if (chosen && compared(i.modifier & 7, a, i.form == Form::kISetPURR ? b : i.immediate)) truth |= 1U << lane;
        continue;
      case Form::kS2rTid:
        result = warp_ * kLanes + lane;
        break;
      case Form::kS2rCtaX:
        result = block_x_;
        break;
      case Form::kS2rCtaY:
        result = block_y_;
        break;
      case Form::kUldcDescriptor:
      case Form::kLdcuDescriptor:
        continue;
      default: {
        const auto value = integerResult(i, a, b, c, chosen);
        if (!value) fault("no model of this instruction");
        result = *value;
      }
    }
    if ((active >> lane & 1) != 0) write(i.destination, lane, result);
  }
  if (i.form == Form::kISetPURR || i.form == Form::kISetPURI) writePredicate(i.predicate, truth, active);
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
