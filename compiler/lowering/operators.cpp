#include "compiler/lowering/operators.h"

#include <array>
#include <string>

#include <llvm/IR/Constants.h>
#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/IntrinsicsNVPTX.h>
#include <llvm/IR/MDBuilder.h>
#include <llvm/IR/Module.h>

#include "ir/functions/programs.h"
#include "ir/rows.h"

namespace srjit {
namespace {

constexpr std::uint64_t kUpperHalf = ~std::uint64_t{0} << 32;

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

// One of the words is no literal.
template <class Emit>
Word words(const Word& x, const Word& y, Emit emit) {
  Lowering& lowering = x.lowering() ? *x.lowering() : *y.lowering();
  return {emit(lowering.builder(), lowering.materialize(x), lowering.materialize(y)), lowering};
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

Value atMost(const Value& x, double limit) { return x.lowering()->bounded(x, limit, false); }
Value atLeast(const Value& x, double limit) { return x.lowering()->bounded(x, limit, true); }
Word operator+(const Word& x, const Word& y) {
  return words(x, y, [](llvm::IRBuilder<>& b, llvm::Value* a, llvm::Value* c) { return b.CreateAdd(a, c); });
}
Word operator-(const Word& x, const Word& y) {
  return words(x, y, [](llvm::IRBuilder<>& b, llvm::Value* a, llvm::Value* c) { return b.CreateSub(a, c); });
}
Word operator&(const Word& x, const Word& y) {
  return words(x, y, [](llvm::IRBuilder<>& b, llvm::Value* a, llvm::Value* c) { return b.CreateAnd(a, c); });
}
Word shiftLeft(const Word& x, int places) {
  return {x.lowering()->builder().CreateShl(x.ir(), static_cast<std::uint64_t>(places)), *x.lowering()};
}
Word shiftRight(const Word& x, int places) { return x.lowering()->shiftRight(x, places); }
Word upperWord(const Value& x) { return x.lowering()->upperWord(x); }
Word lowerWord(const Value& x) { return x.lowering()->lowerWord(x); }
Value withWords(const Value& x, const Word& upper, const Word& lower) { return x.lowering()->withWords(upper, lower); }

// The lowering is that of any value that is no literal.
template <class... Values>
Value functionOf(Function function, const Values&... values) {
  Lowering* lowering = nullptr;
  ((lowering = lowering != nullptr ? lowering : values.lowering()), ...);
  return lowering->function(function, std::array{values...});
}
#define SRJIT_VALUE Value
#define SRJIT_CALL functionOf
#include "ir/functions/define.def"

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

llvm::Value* Lowering::materialize(const Word& word) const {
  if (word.ir() != nullptr) return word.ir();
  if (!hasWideWords()) return llvm::ConstantInt::getSigned(withElement(builder_.getInt32Ty()), word.literal());
  const std::int64_t shifted = std::int64_t{word.literal()} * (std::int64_t{1} << 32);
  return llvm::ConstantInt::getSigned(withElement(builder_.getInt64Ty()), shifted);
}

Word Lowering::upperWord(const Value& x) {
  if (!isDouble(precision_)) return {builder_.CreateBitCast(x.ir(), withElement(builder_.getInt32Ty())), *this};
  llvm::Type* const bits = withElement(builder_.getInt64Ty());
  llvm::Value* const number = builder_.CreateBitCast(x.ir(), bits);
  if (hasWideWords()) return {builder_.CreateAnd(number, llvm::ConstantInt::get(bits, kUpperHalf)), *this};
  return {builder_.CreateTrunc(builder_.CreateLShr(number, 32), builder_.getInt32Ty()), *this};
}

Word Lowering::lowerWord(const Value& x) {
  if (!isDouble(precision_)) return upperWord(x);
  llvm::Value* const number = builder_.CreateBitCast(x.ir(), withElement(builder_.getInt64Ty()));
  if (hasWideWords()) return {builder_.CreateShl(number, 32), *this};
  return {builder_.CreateTrunc(number, builder_.getInt32Ty()), *this};
}

Value Lowering::withWords(const Word& upper, const Word& lower) {
  llvm::Value* bits = materialize(upper);
  if (hasWideWords()) {
    bits = builder_.CreateOr(bits, builder_.CreateLShr(materialize(lower), 32));
  } else if (isDouble(precision_)) {
    llvm::Value* const high = builder_.CreateShl(builder_.CreateZExt(bits, builder_.getInt64Ty()), 32);
    bits = builder_.CreateOr(high, builder_.CreateZExt(materialize(lower), builder_.getInt64Ty()));
  }
  return {builder_.CreateBitCast(bits, type_), *this};
}

Word Lowering::shiftRight(const Word& x, int places) {
  llvm::Value* const shifted = builder_.CreateAShr(x.ir(), static_cast<std::uint64_t>(places));
  if (!hasWideWords()) return {shifted, *this};
  return {builder_.CreateAnd(shifted, llvm::ConstantInt::get(shifted->getType(), kUpperHalf)), *this};
}

// A GPU has one instruction for it in f32. The select is one instruction on the host, which an intrinsic is not.
Value Lowering::bounded(const Value& x, double limit, bool is_least) {
  llvm::Value* const end = literal(limit);
  if (target_ == TargetKind::kDevice && !isDouble(precision_)) {
    const auto id = is_least ? llvm::Intrinsic::maximum : llvm::Intrinsic::minimum;
    return {builder_.CreateIntrinsic(id, {type_}, {x.ir(), end}), *this};
  }
  llvm::Value* const beyond = is_least ? builder_.CreateFCmpOGT(end, x.ir()) : builder_.CreateFCmpOLT(end, x.ir());
  return {builder_.CreateSelect(beyond, end, x.ir()), *this};
}

Lowering::RareBranch Lowering::beginRare(llvm::Value* is_rare) {
  llvm::LLVMContext& context = builder_.getContext();
  llvm::BasicBlock* const before = builder_.GetInsertBlock();
  llvm::Function* const function = before->getParent();
  llvm::BasicBlock* const rare = llvm::BasicBlock::Create(context, "rare", function);
  llvm::BasicBlock* const after = llvm::BasicBlock::Create(context, "usual", function);
  llvm::Value* const in_any_lane = lanes_ == 1 ? is_rare : builder_.CreateOrReduce(is_rare);
  llvm::MDBuilder weights(context);
  builder_.CreateCondBr(in_any_lane, rare, after, weights.createUnlikelyBranchWeights());
  builder_.SetInsertPoint(rare);
  return {before, rare, after};
}

void Lowering::endRare(const RareBranch& branch, llvm::Value* is_rare, std::span<const Value> usual,
                       std::span<Value> values) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    llvm::Value* const rare = materialize(values[i]);
    values[i] = {lanes_ > 1 ? builder_.CreateSelect(is_rare, rare, materialize(usual[i])) : rare, *this};
  }
  llvm::BasicBlock* const end = builder_.GetInsertBlock();
  builder_.CreateBr(branch[2]);
  builder_.SetInsertPoint(branch[2]);
  for (std::size_t i = 0; i < values.size(); ++i) {
    llvm::PHINode* const result = builder_.CreatePHI(type_, 2);
    result->addIncoming(materialize(usual[i]), branch[0]);
    result->addIncoming(values[i].ir(), end);
    values[i] = {result, *this};
  }
}

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
  if (calls_programs_) return programCall(function, used);
  Lowering precise(builder_, target_, precision_, Math::kPrecise, lanes_);
  const Value x(used.front(), precise), y(used.back(), precise);
  return {precise.materialize(functions::apply<Value>(precision_, function, x, y)), *this};
}

Value Lowering::programCall(Function function, std::span<llvm::Value* const> arguments) {
  llvm::Function& caller = *builder_.GetInsertBlock()->getParent();
  llvm::Module& module = *caller.getParent();
  const std::string name = "srjit_" + std::string(infoOf(function).name);
  llvm::Function* program = module.getFunction(name);
  if (program == nullptr) {
    const llvm::SmallVector<llvm::Type*, kMaxArity> types(arguments.size(), type_);
    program = llvm::Function::Create(llvm::FunctionType::get(type_, types, false), llvm::Function::InternalLinkage,
                                     name, module);
    program->addFnAttrs(llvm::AttrBuilder(module.getContext(), caller.getAttributes().getFnAttrs()));
    program->setDoesNotAccessMemory();
    program->addFnAttr(llvm::Attribute::WillReturn);
    program->addFnAttr(llvm::Attribute::NoInline);
    llvm::IRBuilder<> body(llvm::BasicBlock::Create(module.getContext(), "entry", program));
    Lowering lowering(body, target_, precision_, Math::kPrecise, lanes_);
    const Value x(program->getArg(0), lowering),
        y(program->getArg(static_cast<unsigned>(arguments.size() - 1)), lowering);
    body.CreateRet(lowering.materialize(functions::apply<Value>(precision_, function, x, y)));
  }
  return {builder_.CreateCall(program, {arguments.data(), arguments.size()}), *this};
}

}  // namespace srjit
