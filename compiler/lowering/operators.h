// Lowering of the operator table to LLVM IR: one `Value` domain for every kernel of both targets.
#pragma once

#include <span>

#include <llvm/IR/IRBuilder.h>

#include "ir/numeric.h"
#include "ir/op.h"

namespace srjit {

class Lowering;

/// What a kernel runs on, as far as lowering an operator is concerned.
enum class TargetKind { kDevice, kHost };

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

#include "ir/domain.def"

/// The scalar type of a precision.
llvm::Type* elementTypeOf(Precision precision, llvm::LLVMContext& context);

/// Emits operators at a builder's insertion point. The element type is `float` or `double`, as a scalar on a device and
/// a vector of `lanes` on the host. Emitted floating-point instructions carry no fast-math flags: nothing may contract
/// or reassociate them. Not thread-safe; borrows the builder.
class Lowering {
 public:
  Lowering(llvm::IRBuilder<>& builder, TargetKind target, Precision precision, Math math, unsigned lanes = 1);

  /// The value of `op` over its operands, by its row of the operator table.
  llvm::Value* apply(Op op, std::span<llvm::Value* const> operands);

  llvm::IRBuilder<>& builder() const { return builder_; }
  TargetKind target() const { return target_; }
  Precision precision() const { return precision_; }
  unsigned lanes() const { return lanes_; }
  /// The scalar type, and the type of a Value.
  llvm::Type* elementType() const { return element_; }
  llvm::Type* type() const { return type_; }
  /// Whether the approximate forms of `fast` apply: they exist for f32 alone.
  bool approximate() const { return isApproximate(math_, precision_); }
  /// A literal rounded to the precision.
  llvm::Value* literal(double value) const;
  /// A type of the same shape with other elements.
  llvm::Type* withElement(llvm::Type* element) const;
  llvm::Value* materialize(const Value& value) const {
    return value.isLiteral() ? literal(value.literal()) : value.ir();
  }

  Value function(Function function, std::span<const Value> arguments);
  Value divide(const Value& x, const Value& y);

 private:
  Value libraryCall(const FunctionInfo& info, std::span<llvm::Value* const> arguments);

  llvm::IRBuilder<>& builder_;
  TargetKind target_;
  Precision precision_;
  Math math_;
  unsigned lanes_;
  llvm::Type* element_;
  llvm::Type* type_;
};

/// The suffix of names of functions of libdevice, libm and libmvec.
constexpr const char* librarySuffixOf(Precision precision) {
  switch (precision) {
    case Precision::kF32:
      return "f";
    case Precision::kF64:
      return "";
  }
  __builtin_unreachable();
}

/// The name of libmvec's function for `lanes` elements, as in the x86 vector function ABI: "_ZGVdN8v_sinf". Empty where
/// the running machine's libmvec does not have it; then each element is passed to libm.
std::string vectorFunctionName(const FunctionInfo& info, Precision precision, unsigned lanes);

}  // namespace srjit
