#include "compiler/lowering/operators.h"

#include <array>
#include <string>

#include <llvm/IR/Constants.h>
#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/IntrinsicsNVPTX.h>
#include <llvm/IR/Module.h>

#include "compiler/lowering/approximate.h"
#include "ir/rows.h"

namespace srjit {
namespace {

Lowering& loweringOf(const Value& x, const Value& y) { return x.lowering() ? *x.lowering() : *y.lowering(); }

llvm::Intrinsic::ID intrinsicOf(Function function) {
  switch (function) {
    case Function::k_abs:
      return llvm::Intrinsic::fabs;
    case Function::k_copysign:
      return llvm::Intrinsic::copysign;
    case Function::k_minimum:
      return llvm::Intrinsic::minimum;
    case Function::k_maximum:
      return llvm::Intrinsic::maximum;
    case Function::k_floor:
      return llvm::Intrinsic::floor;
    case Function::k_ceil:
      return llvm::Intrinsic::ceil;
    case Function::k_rint:
      return llvm::Intrinsic::rint;
    case Function::k_fma:
      return llvm::Intrinsic::fma;
    case Function::k_sqrt:
      return llvm::Intrinsic::sqrt;
    default:
      return llvm::Intrinsic::not_intrinsic;
  }
}

// Two literals are operands only inside a row, as in T(1) / T(3). Their result is a literal, in double; it is rounded
// where it becomes the operand of a value of the kernel.
template <class Fold, class Emit>
Value binary(const Value& x, const Value& y, Fold fold, Emit emit) {
  if (x.isLiteral() && y.isLiteral()) return Value(fold(x.literal(), y.literal()));
  Lowering& lowering = loweringOf(x, y);
  return {emit(lowering, lowering.materialize(x), lowering.materialize(y)), lowering};
}

Mask compare(llvm::CmpInst::Predicate predicate, const Value& x, const Value& y) {
  Lowering& lowering = loweringOf(x, y);
  return {lowering.builder().CreateFCmp(predicate, lowering.materialize(x), lowering.materialize(y)), &lowering};
}

}  // namespace

Value operator+(const Value& x, const Value& y) {
  return binary(
      x, y, [](double a, double b) { return a + b; },
      [](Lowering& l, llvm::Value* a, llvm::Value* b) { return l.builder().CreateFAdd(a, b); });
}
Value operator-(const Value& x, const Value& y) {
  return binary(
      x, y, [](double a, double b) { return a - b; },
      [](Lowering& l, llvm::Value* a, llvm::Value* b) { return l.builder().CreateFSub(a, b); });
}
Value operator*(const Value& x, const Value& y) {
  return binary(
      x, y, [](double a, double b) { return a * b; },
      [](Lowering& l, llvm::Value* a, llvm::Value* b) { return l.builder().CreateFMul(a, b); });
}
Value operator/(const Value& x, const Value& y) {
  if (x.isLiteral() && y.isLiteral()) return Value(x.literal() / y.literal());
  return loweringOf(x, y).divide(x, y);
}
Value operator-(const Value& x) {
  if (x.isLiteral()) return Value(-x.literal());
  return {x.lowering()->builder().CreateFNeg(x.ir()), *x.lowering()};
}
Mask lt(const Value& x, const Value& y) { return compare(llvm::CmpInst::FCMP_OLT, x, y); }
Mask le(const Value& x, const Value& y) { return compare(llvm::CmpInst::FCMP_OLE, x, y); }
Mask eq(const Value& x, const Value& y) { return compare(llvm::CmpInst::FCMP_OEQ, x, y); }
Value select(const Mask& mask, const Value& x, const Value& y) {
  Lowering& lowering = *mask.lowering;
  return {lowering.builder().CreateSelect(mask.ir, lowering.materialize(x), lowering.materialize(y)), lowering};
}

#define SRJIT_FUNCTION(id, arity, ...) SRJIT_DEFINE_##arity(id)
#define SRJIT_DEFINE_1(id) \
  Value id(const Value& x) { return x.lowering()->function(Function::k_##id, std::array{x}); }
#define SRJIT_DEFINE_2(id) \
  Value id(const Value& x, const Value& y) { return loweringOf(x, y).function(Function::k_##id, std::array{x, y}); }
#define SRJIT_DEFINE_3(id)                                                \
  Value id(const Value& x, const Value& y, const Value& z) {              \
    Lowering& lowering = x.lowering() ? *x.lowering() : loweringOf(y, z); \
    return lowering.function(Function::k_##id, std::array{x, y, z});      \
  }
#include "ir/functions.def"
#undef SRJIT_FUNCTION
#undef SRJIT_DEFINE_1
#undef SRJIT_DEFINE_2
#undef SRJIT_DEFINE_3

llvm::Type* elementTypeOf(Precision precision, llvm::LLVMContext& context) {
  switch (precision) {
    case Precision::kF32:
      return llvm::Type::getFloatTy(context);
    case Precision::kF64:
      return llvm::Type::getDoubleTy(context);
  }
  __builtin_unreachable();
}

Lowering::Lowering(llvm::IRBuilder<>& builder, TargetKind target, Precision precision, Math math, unsigned lanes)
    : builder_(builder),
      target_(target),
      precision_(precision),
      math_(math),
      lanes_(lanes),
      element_(elementTypeOf(precision, builder.getContext())),
      type_(withElement(element_)) {}

llvm::Type* Lowering::withElement(llvm::Type* element) const {
  return lanes_ == 1 ? element : llvm::FixedVectorType::get(element, lanes_);
}

llvm::Value* Lowering::literal(double value) const { return llvm::ConstantFP::get(type_, value); }

llvm::Value* Lowering::apply(Op op, std::span<llvm::Value* const> operands) {
  const auto at = [&](std::size_t i) { return i < operands.size() ? Value(operands[i], *this) : Value(0.0); };
  return materialize(applyRow<Value>(op, at(0), at(1), at(2)));
}

Value Lowering::divide(const Value& x, const Value& y) {
  if (approximate()) return {emitApproximateQuotient(*this, x, y), *this};
  return {builder_.CreateFDiv(materialize(x), materialize(y)), *this};
}

Value Lowering::function(Function function, std::span<const Value> arguments) {
  std::array<llvm::Value*, kMaxArity> operands{};
  for (std::size_t i = 0; i < arguments.size(); ++i) operands[i] = materialize(arguments[i]);
  const std::span<llvm::Value* const> used(operands.data(), arguments.size());
  if (approximate()) {
    if (llvm::Value* const result = emitApproximate(*this, function, used)) return {result, *this};
  }
  if (const auto id = intrinsicOf(function); id != llvm::Intrinsic::not_intrinsic) {
    return {builder_.CreateIntrinsic(id, {type_}, {used.data(), used.size()}), *this};
  }
  return libraryCall(infoOf(function), used);
}

Value Lowering::libraryCall(const FunctionInfo& info, std::span<llvm::Value* const> arguments) {
  llvm::Module& module = *builder_.GetInsertBlock()->getModule();
  const llvm::ArrayRef<llvm::Value*> operands(arguments.data(), arguments.size());
  const auto callee = [&](const std::string& name, llvm::Type* type) {
    const llvm::SmallVector<llvm::Type*, kMaxArity> types(arguments.size(), type);
    auto declared = module.getOrInsertFunction(name, llvm::FunctionType::get(type, types, false));
    auto* const function = llvm::cast<llvm::Function>(declared.getCallee());
    function->setDoesNotThrow();
    function->setDoesNotAccessMemory();
    function->addFnAttr(llvm::Attribute::WillReturn);
    return declared;
  };
  const std::string suffix = librarySuffixOf(precision_);
  if (target_ == TargetKind::kDevice) {
    return {builder_.CreateCall(callee("__nv_" + std::string(info.libdevice) + suffix, type_), operands), *this};
  }
  if (const std::string name = vectorFunctionName(info, precision_, lanes_); !name.empty()) {
    return {builder_.CreateCall(callee(name, type_), operands), *this};
  }
  const auto scalar = callee(std::string(info.libmvec) + suffix, element_);
  llvm::Value* result = llvm::PoisonValue::get(type_);
  for (unsigned lane = 0; lane < lanes_; ++lane) {
    llvm::SmallVector<llvm::Value*, kMaxArity> elements;
    for (llvm::Value* const argument : arguments) elements.push_back(builder_.CreateExtractElement(argument, lane));
    result = builder_.CreateInsertElement(result, builder_.CreateCall(scalar, elements), lane);
  }
  return {result, *this};
}

}  // namespace srjit
