// The domain of the direct tier for the rows of ops.def: operators append instructions. Negation and absolute value are
// deferred, since most instructions accept them as operand modifiers. Internal to the direct tier.
#pragma once

#include <array>
#include <bit>
#include <optional>
#include <span>

#include "compiler/direct/code.h"
#include "compiler/direct/registers.h"
#include "ir/numeric.h"
#include "ir/op.h"

namespace srjit::direct {

class Builder;

/// A number per lane: a value (of a double, a pair) with an optional magnitude and, after that, an optional change of
/// sign; or a literal that is not yet rounded. Two machine words, so that it is passed in registers.
class Value {
 public:
  Value(double literal = 0) : bits_(std::bit_cast<std::uint64_t>(literal)) {}
  Value(ValueId id, Builder& builder) : builder_(&builder), bits_(id) {}

  bool isLiteral() const { return builder_ == nullptr; }
  double literal() const { return std::bit_cast<double>(bits_); }
  Builder* builder() const { return builder_; }
  ValueId id() const { return static_cast<ValueId>(bits_); }
  bool isNegated() const { return (bits_ & kNegated) != 0; }
  bool isMagnitude() const { return (bits_ & kMagnitude) != 0; }

  Value negated() const { return {builder_, bits_ ^ kNegated}; }
  Value magnitude() const { return {builder_, (bits_ & ~kNegated) | (isLiteral() ? 0 : kMagnitude)}; }

 private:
  static constexpr std::uint64_t kNegated = std::uint64_t{1} << 63;  // the sign of a literal
  static constexpr std::uint64_t kMagnitude = std::uint64_t{1} << 62;
  Value(Builder* builder, std::uint64_t bits) : builder_(builder), bits_(bits) {}

  Builder* builder_ = nullptr;  ///< null: a literal
  std::uint64_t bits_;          ///< the bits of a double; or an id, with kNegated and kMagnitude
};

struct Mask {
  PredicateId predicate;
  Builder* builder;
};

/// An integer of 32 bits per lane, or a literal.
class Word {
 public:
  Word(std::int32_t literal) : bits_(static_cast<std::uint32_t>(literal)) {}
  Word(ValueId id, Builder& builder) : builder_(&builder), bits_(id) {}

  bool isLiteral() const { return builder_ == nullptr; }
  std::uint32_t literal() const { return bits_; }
  Builder* builder() const { return builder_; }
  ValueId id() const { return bits_; }

 private:
  Builder* builder_ = nullptr;  ///< null: a literal
  std::uint32_t bits_;          ///< of the literal, or an id
};

#include "ir/functions/domain.def"

struct NumberOpcodes;

/// Whether quotients and square roots have a shorter way for usual operands, and a branch: in subroutines.
enum class Quotients : std::uint8_t { kOneWay, kTwoWays };

/// Appends the instructions of numbers to a Code.
class Builder {
 public:
  /// Quotients::kTwoWays: only in f32. There are no subroutines of f64, whose inlined code would have both ways at
  /// every quotient and root.
  Builder(Code& code, Math math, Precision precision, Quotients quotients = Quotients::kOneWay);

  Code& code() { return code_; }
  /// Whether the approximate instructions of Math::kFast apply, as in Lowering.
  bool approximate() const { return approximate_; }
  /// The value of `op` over its operands, by its row of the operator table; those past its arity are ignored.
  Value apply(Op op, const std::array<Value, kMaxArity>& operands);
  /// Whether beginRare() was called.
  bool hasBranches() const { return has_branches_; }

  /// A register with modifiers applied, for instructions that accept none, and for literals.
  ValueId plain(const Value& x);
  Value literal(double value);
  ValueId literalRegister(std::uint32_t bits);

  Value add(const Value& x, const Value& y);
  Value multiply(const Value& x, const Value& y, std::uint8_t modifier = 0);
  Value fuse(const Value& x, const Value& y, const Value& z, std::uint8_t modifier = 0);
  Value extreme(const Value& x, const Value& y, bool largest, std::uint8_t modifier);
  Value special(sass::Mufu function, const Value& x);
  Value rounded(sass::Round direction, const Value& x);
  Mask compare(sass::Compare how, const Value& x, const Value& y, PredicateId condition = kAlways,
               sass::Combine combine = sass::Combine::kAnd);
  Value choose(PredicateId condition, const Value& x, const Value& y);
  Value copySign(const Value& magnitude, const Value& sign);
  /// (bits of x) ^ (bits of y << 31), in f32.
  Value flipSign(const Value& x, const Value& y);
  Value divide(const Value& x, const Value& y);
  Word addWords(const Word& x, const Word& y, bool subtract);
  Word intersect(const Word& x, const Word& y);
  Word shift(Opcode opcode, const Word& x, int places);
  /// x is no literal.
  Word upperWordOf(const Value& x);
  Word lowerWordOf(const Value& x);
  /// A number with these words; `lower` does not count in f32.
  Value numberOf(const Word& upper, const Word& lower = 0);

  Value function(Function function, std::span<const Value> arguments);

  /// Appends a branch over the code up to endRare(). A warp takes the branch if `is_rare` holds in none of its lanes.
  std::uint32_t beginRare(const Mask& is_rare);
  /// `usual`, or `rare` where it is rare.
  template <std::size_t kCount>
  std::array<Value, kCount> endRare(std::uint32_t branch, const Mask& is_rare, const std::array<Value, kCount>& usual,
                                    const std::array<Value, kCount>& rare);

 private:
  /// x and y as sources a and b of `rest`, or y as its immediate; x must not be a literal.
  [[gnu::always_inline]] inline Operation withSources(Opcode registers, Opcode immediate, const Value& x,
                                                      const Value& y, Operation rest = {});
  [[gnu::always_inline]] Value result(const Operation& operation) {
    const ValueId value = code_.value(operation);
    if (is_wide_) code_.newValues();
    return {value, *this};
  }
  /// Whether instructions can have the literal as their immediate, which of a double is the upper half.
  bool isImmediate(const Value& literal) const {
    return !is_wide_ || static_cast<std::uint32_t>(std::bit_cast<std::uint64_t>(literal.literal())) == 0;
  }
  std::uint32_t immediateOf(const Value& literal) const {
    if (is_wide_) return static_cast<std::uint32_t>(std::bit_cast<std::uint64_t>(literal.literal()) >> 32);
    return std::bit_cast<std::uint32_t>(static_cast<float>(literal.literal()));
  }
  Value bare(const Value& x) { return x.isLiteral() ? x : Value(plain(x), *this); }
  ValueId idOf(const Word& word);
  Value extremeOfDoubles(const Value& x, const Value& y, bool largest);
  Value exact(Function function, std::span<const Value> x);
  /// None where `fast` uses the precise form.
  std::optional<Value> approximation(Function function, const Value& x, const Value& y);
  Value power(const Value& x, const Value& y);
  Value quotient(const Value& x, const Value& y);
  Value usualQuotient(const Value& x, const Value& y);
  Value root(const Value& x);
  Value usualRoot(const Value& x);
  /// a b + c, or `rare` where it is rare. Ends what beginRare() began; nothing else reads a, b and c, three registers.
  Value endRareSum(std::uint32_t branch, const Mask& is_rare, const Value& a, const Value& b, const Value& c,
                   const Value& rare);
  /// The same of a b + b.
  Value endRareProduct(std::uint32_t branch, const Mask& is_rare, const Value& a, const Value& b, const Value& rare);
  Value fuseAtTarget(std::uint32_t branch, const Value& a, const Value& b, const Value& c);
  /// `rare` where it is rare, in the register of `usual`.
  Value replaced(const Mask& is_rare, const Value& usual, const Value& rare);
  struct Scaled;
  Scaled scaled(const Value& x, std::int32_t factor_of_none);
  /// 1 / x and 1 / sqrt(x) of a scaled number, as the special function unit has them.
  Value estimate(sass::Mufu of_float, sass::Mufu of_double, const Value& x);
  Value betterReciprocal(const Value& y, const Value& estimate);
  struct NearRoot;
  NearRoot nearRoot(const Value& x, const Value& estimate);
  /// x with bits of its upper word as LOP3 has them from it, `bits` and the upper word of y.
  Value withBits(std::uint8_t table, const Value& x, const Value& y, std::uint32_t bits);

  Code& code_;
  Precision precision_;
  bool approximate_;
  bool is_wide_;  ///< numbers are doubles
  Quotients quotients_;
  bool has_branches_ = false;
  const NumberOpcodes& opcodes_;
};

// Where the branch is taken, the registers of `rare` have no value, and none is selected.
template <std::size_t kCount>
std::array<Value, kCount> Builder::endRare(std::uint32_t branch, const Mask& is_rare,
                                           const std::array<Value, kCount>& usual,
                                           const std::array<Value, kCount>& rare) {
  const std::uint32_t end = code_.size();
  std::array<Value, kCount> results;
  for (std::size_t i = 0; i < kCount; ++i) results[i] = choose(is_rare.predicate, rare[i], usual[i]);
  code_.operation(end).synchronized = true;
  code_.operation(branch).immediate = end;
  return results;
}

template <std::size_t kCount, class Rare>
std::array<Value, kCount> rarely(const Mask& is_rare, const std::array<Value, kCount>& usual, const Rare& rare) {
  Builder& builder = *is_rare.builder;
  const std::uint32_t branch = builder.beginRare(is_rare);
  const std::array<Value, kCount> values = rare();
  return builder.endRare(branch, is_rare, usual, values);
}

}  // namespace srjit::direct
