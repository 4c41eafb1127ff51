// Lowering of the operator table to LLVM IR: one `Value` domain for every kernel of both targets.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Value.h>

#include "compiler/lowering/code_weights.h"
#include "ir/numeric.h"
#include "ir/op.h"

namespace srjit {

class Lowering;

/// A number of the kernel's precision: an LLVM value, or a literal that is not yet rounded to it.
class Value {
 public:
  Value(double literal) : literal_(literal) {}
  Value(llvm::Value* value, Lowering& lowering) : value_(value), lowering_(&lowering) {}

  Lowering* lowering() const { return lowering_; }
  bool isLiteral() const { return value_ == nullptr; }
  double literal() const { return literal_; }
  llvm::Value* ir() const { return value_; }

 private:
  llvm::Value* value_ = nullptr;
  Lowering* lowering_ = nullptr;
  double literal_ = 0;
};

/// A truth value per element.
struct Mask {
  llvm::Value* ir;
  Lowering* lowering;
};

/// An integer of 32 bits per element, or a literal. On the host in f64 it is the upper half of an integer of 64 bits
/// whose lower half is 0, so that it has the width of the numbers.
class Word {
 public:
  Word(std::int32_t literal) : literal_(literal) {}
  Word(llvm::Value* value, Lowering& lowering) : value_(value), lowering_(&lowering) {}

  Lowering* lowering() const { return lowering_; }
  std::int32_t literal() const { return literal_; }
  llvm::Value* ir() const { return value_; }

 private:
  llvm::Value* value_ = nullptr;
  Lowering* lowering_ = nullptr;
  std::int32_t literal_ = 0;
};

#include "ir/functions/domain.def"

/// The scalar type of a precision.
llvm::Type* elementTypeOf(Precision precision, llvm::LLVMContext& context);

/// Emits operators at a builder's insertion point. The element type is `float` or `double`, as a scalar on a device and
/// a vector of `lanes` on the host. Emitted floating-point instructions carry no fast-math flags: nothing may contract
/// or reassociate them. Not thread-safe; borrows the builder.
class Lowering {
 public:
  Lowering(llvm::IRBuilder<>& builder, TargetKind target, Precision precision, Math math, unsigned lanes = 1);

  /// From now on the program of a function is a function of the module, made at its first use and called. Otherwise it
  /// is written out at each use, which takes LLVM long where there are many.
  void callPrograms() { calls_programs_ = true; }

  /// The blocks before, of, and after code that is rarely run: emitted code is that code until endRare().
  using RareBranch = std::array<llvm::BasicBlock*, 3>;
  RareBranch beginRare(llvm::Value* is_rare);
  /// Makes of each value of that code the `usual` one where it is not rare; both have the same length.
  void endRare(const RareBranch& branch, llvm::Value* is_rare, std::span<const Value> usual, std::span<Value> values);

  /// The value of `op` over its operands, by its row of the operator table.
  llvm::Value* apply(Op op, std::span<llvm::Value* const> operands);

  llvm::IRBuilder<>& builder() const { return builder_; }
  TargetKind target() const { return target_; }
  Precision precision() const { return precision_; }
  unsigned lanes() const { return lanes_; }
  /// The scalar type, and the type of a Value.
  llvm::Type* elementType() const { return element_; }
  llvm::Type* type() const { return type_; }
  /// Whether the approximate forms of `fast` apply: they exist only for f32.
  bool approximate() const { return isApproximate(math_, precision_); }
  /// A literal rounded to the precision.
  llvm::Value* literal(double value) const;
  /// A type of the same shape with other elements.
  llvm::Type* withElement(llvm::Type* element) const;
  llvm::Value* materialize(const Value& value) const {
    return value.isLiteral() ? literal(value.literal()) : value.ir();
  }

  llvm::Value* materialize(const Word& word) const;
  /// Whether a Word is the upper half of an integer.
  bool hasWideWords() const { return target_ == TargetKind::kHost && isDouble(precision_); }
  Word upperWord(const Value& x);
  Word lowerWord(const Value& x);
  Value withWords(const Word& upper, const Word& lower);
  Word shiftRight(const Word& x, int places);
  /// atMost() of ir/functions/domain.def; `is_least`: atLeast().
  Value bounded(const Value& x, double limit, bool is_least);

  Value function(Function function, std::span<const Value> arguments);
  Value divide(const Value& x, const Value& y);

 private:
  Value programCall(Function function, std::span<llvm::Value* const> arguments);

  llvm::IRBuilder<>& builder_;
  TargetKind target_;
  Precision precision_;
  Math math_;
  unsigned lanes_;
  bool calls_programs_ = false;
  llvm::Type* element_;
  llvm::Type* type_;
};

template <std::size_t kCount, class Rare>
std::array<Value, kCount> rarely(const Mask& is_rare, const std::array<Value, kCount>& usual, const Rare& rare) {
  Lowering& lowering = *is_rare.lowering;
  const Lowering::RareBranch branch = lowering.beginRare(is_rare.ir);
  std::array<Value, kCount> values = rare();
  lowering.endRare(branch, is_rare.ir, usual, values);
  return values;
}

// The approximate forms of f32 `fast`: instructions on a GPU, short polynomials on the host. Subnormal operands and
// results may count as zero. The bounds are in ir/functions.def.

/// The approximate form of `function` in f32 `fast`, or null where fast uses the precise form.
llvm::Value* emitApproximate(Lowering& lowering, Function function, std::span<llvm::Value* const> arguments);

/// x / y in f32 `fast`.
llvm::Value* emitApproximateQuotient(Lowering& lowering, const Value& x, const Value& y);

}  // namespace srjit
