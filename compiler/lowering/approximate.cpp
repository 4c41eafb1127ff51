#include "compiler/lowering/operators.h"

#include <limits>
#include <span>

#include <llvm/IR/InlineAsm.h>
#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/IntrinsicsNVPTX.h>
#include <llvm/IR/IntrinsicsX86.h>

#include "ir/numbers/fast_forms.h"
#include "ir/ops.h"

namespace srjit {
namespace {

using llvm::Intrinsic::ID;

/// Minimax polynomials by Remez' exchange algorithm, fitted for this project: maximal relative errors 2^-23.7 and
/// 2^-25.2.
constexpr double kExp2[] = {1.000000071654682,    0.693146967064733,   0.24022119723848634,
                            0.055507132735430245, 0.00967554133421011, 0.0013276471979301512};  // 2^f, |f| <= 1/2
constexpr double kLog2[] = {
    1.4426950036524329,  -0.7213473468016068,  0.4809106429412433,   // log2(1 + t) / t,
    -0.3607036829420104, 0.2879162483289061,   -0.2389448187631338,  // 1/sqrt 2 <= 1 + t <= sqrt 2
    0.21571560126029565, -0.20726976180249143, 0.12583705107299706};

constexpr double kLog2Wide[] = {
    1.4426950324420609,   -0.7213484783822595, 0.4809020805442842,   // log2(1 + t) / t, 3/4 <= 1 + t < 3/2,
    -0.36057592188104465, 0.28819150307928343, -0.2427235159343079,  // error 2^-25.1
    0.21632487638468464,  -0.1742302653287544, 0.078066765729408};

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kSmallestNormal = std::numeric_limits<float>::min();

struct Emitter {
  Lowering& lowering;
  llvm::IRBuilder<>& b;

  llvm::Value* number(double value) const { return lowering.literal(value); }
  llvm::Value* instruction(ID id, llvm::Value* x) const { return b.CreateIntrinsic(id, {}, {x}); }
  llvm::Value* intrinsic(ID id, std::initializer_list<llvm::Value*> operands) const {
    return b.CreateIntrinsic(id, {lowering.type()}, {operands.begin(), operands.size()});
  }
  llvm::Type* integers() const { return lowering.withElement(b.getInt32Ty()); }
  llvm::Value* integer(int value) const { return llvm::ConstantInt::getSigned(integers(), value); }

  // Horner's rule with fused steps.
  llvm::Value* polynomial(std::span<const double> coefficients, llvm::Value* x) const {
    llvm::Value* sum = number(coefficients.back());
    for (std::size_t i = coefficients.size() - 1; i-- > 0;) {
      sum = intrinsic(llvm::Intrinsic::fma, {sum, x, number(coefficients[i])});
    }
    return sum;
  }

  // AVX-512 has instructions that take floats apart and put them together, exceptional values included.
  bool hasFloatParts() const { return lowering.target() == TargetKind::kHost && lowering.lanes() == 16; }
  llvm::Value* parts(ID id, std::initializer_list<llvm::Value*> operands) const {
    llvm::SmallVector<llvm::Value*, 6> arguments(operands);
    const auto current_rounding = b.getInt32(4);
    arguments.append({llvm::PoisonValue::get(lowering.type()), b.getInt16(0xffff), current_rounding});
    return b.CreateIntrinsic(id, {}, arguments);
  }

  llvm::Value* exp2(llvm::Value* x) const {
    if (lowering.target() == TargetKind::kDevice) return instruction(llvm::Intrinsic::nvvm_ex2_approx_ftz_f, x);
    if (hasFloatParts()) {
      llvm::Value* const power = intrinsic(llvm::Intrinsic::rint, {x});
      return parts(llvm::Intrinsic::x86_avx512_mask_scalef_ps_512, {polynomial(kExp2, b.CreateFSub(x, power)), power});
    }
    llvm::Value* const whole = intrinsic(llvm::Intrinsic::rint, {x});
    llvm::Value* const mantissa = polynomial(kExp2, b.CreateFSub(x, whole));
    llvm::Value* const exponent = b.CreateShl(b.CreateFPToSI(whole, integers()), 23);
    llvm::Value* const scaled =
        b.CreateBitCast(b.CreateAdd(b.CreateBitCast(mantissa, integers()), exponent), lowering.type());
    llvm::Value* const not_tiny = b.CreateSelect(b.CreateFCmpOLT(x, number(-126)), number(0), scaled);
    return b.CreateSelect(b.CreateFCmpOLT(x, number(128)), not_tiny, b.CreateFMul(x, number(kInfinity)));
  }

  llvm::Value* log2(llvm::Value* x) const {
    if (lowering.target() == TargetKind::kDevice) return instruction(llvm::Intrinsic::nvvm_lg2_approx_ftz_f, x);
    if (hasFloatParts()) {
      constexpr int kThreeQuarters = 3, kNaNBelowZero = 3 << 2;
      llvm::Value* const part =
          parts(llvm::Intrinsic::x86_avx512_mask_getmant_ps_512, {x, b.getInt32(kThreeQuarters | kNaNBelowZero)});
      llvm::Value* const power = b.CreateFSub(parts(llvm::Intrinsic::x86_avx512_mask_getexp_ps_512, {x}),
                                              parts(llvm::Intrinsic::x86_avx512_mask_getexp_ps_512, {part}));
      llvm::Value* const t = b.CreateFSub(part, number(1));
      return intrinsic(llvm::Intrinsic::fma, {t, polynomial(kLog2Wide, t), power});
    }
    constexpr int kBitsOfSqrtHalf = 0x3f3504f3;
    llvm::Value* const bits = b.CreateBitCast(x, integers());
    llvm::Value* const exponent = b.CreateAShr(b.CreateSub(bits, integer(kBitsOfSqrtHalf)), 23);
    llvm::Value* const mantissa = b.CreateBitCast(b.CreateSub(bits, b.CreateShl(exponent, 23)), lowering.type());
    llvm::Value* const t = b.CreateFSub(mantissa, number(1));
    llvm::Value* const sum =
        intrinsic(llvm::Intrinsic::fma, {t, polynomial(kLog2, t), b.CreateSIToFP(exponent, lowering.type())});
    llvm::Value* const finite = b.CreateSelect(b.CreateFCmpOLT(x, number(kInfinity)), sum, x);
    llvm::Value* const below = b.CreateSelect(b.CreateFCmpOLT(x, number(0)), number(kNaN), number(-kInfinity));
    return b.CreateSelect(b.CreateFCmpOLT(x, number(kSmallestNormal)), below, finite);
  }

  // |x|^y by logarithms; for x < 0 the sign of an odd y, or NaN for a fractional one. Rounding to an integer is slow on
  // a GPU, so it is done by adding 2^23, which also shows whether |y| < 2^23 is odd. Above, where the error of the
  // power covers its sign, y counts as even.
  llvm::Value* pow(llvm::Value* x, llvm::Value* y) const {
    llvm::Value* const magnitude = intrinsic(llvm::Intrinsic::fabs, {x});
    llvm::Value* const power = exp2(b.CreateFMul(y, log2(magnitude)));
    llvm::Value* const exponent = intrinsic(llvm::Intrinsic::fabs, {y});
    llvm::Value* const most = number(kFirstWhole);
    llvm::Value* const small = lowering.target() == TargetKind::kDevice
                                   ? intrinsic(llvm::Intrinsic::minnum, {exponent, most})
                                   : b.CreateSelect(b.CreateFCmpOLT(exponent, most), exponent, most);
    llvm::Value* const rounded = b.CreateFAdd(small, most);
    llvm::Value* const whole = b.CreateFCmpOEQ(b.CreateFSub(rounded, most), small);
    llvm::Value* const odd = b.CreateShl(b.CreateBitCast(rounded, integers()), 31);
    llvm::Value* const with_sign =
        b.CreateBitCast(b.CreateXor(b.CreateBitCast(power, integers()), odd), lowering.type());
    llvm::Value* const of_negative = b.CreateSelect(whole, with_sign, number(kNaN));
    llvm::Value* const result = b.CreateSelect(b.CreateFCmpOLT(x, number(0)), of_negative, power);
    return b.CreateSelect(b.CreateFCmpOEQ(y, number(0)), number(1), result);
  }
};

}  // namespace

llvm::Value* emitApproximateQuotient(Lowering& lowering, const Value& x, const Value& y) {
  llvm::IRBuilder<>& b = lowering.builder();
  llvm::Value* const denominator = lowering.materialize(y);
  // On the host a division is better than an estimate with a Newton step: the divider works beside the multipliers,
  // which the polynomials of the other functions keep busy.
  if (lowering.target() == TargetKind::kHost) return b.CreateFDiv(lowering.materialize(x), denominator);
  if (x.isLiteral() && x.literal() == 1) {
    return b.CreateIntrinsic(llvm::Intrinsic::nvvm_rcp_approx_ftz_f, {}, {denominator});
  }
  return b.CreateIntrinsic(llvm::Intrinsic::nvvm_div_approx_ftz_f, {}, {lowering.materialize(x), denominator});
}

llvm::Value* emitApproximate(Lowering& lowering, Function function, std::span<llvm::Value* const> arguments) {
  const Emitter e{lowering, lowering.builder()};
  const bool device = lowering.target() == TargetKind::kDevice;
  llvm::Value* const x = arguments[0];
  switch (function) {
    case Function::k_exp:
      return e.exp2(e.b.CreateFMul(x, e.number(kLog2OfE)));
    case Function::k_exp2:
      return e.exp2(x);
    case Function::k_log:
      return e.b.CreateFMul(e.log2(x), e.number(kLn2));
    case Function::k_log2:
      return e.log2(x);
    case Function::k_log10:
      return e.b.CreateFMul(e.log2(x), e.number(kLog10Of2));
    case Function::k_pow:
      return e.pow(x, arguments[1]);
    case Function::k_sqrt:
      return device ? e.instruction(llvm::Intrinsic::nvvm_sqrt_approx_ftz_f, x) : nullptr;
    case Function::k_sin:
      return device ? e.instruction(llvm::Intrinsic::nvvm_sin_approx_ftz_f, x) : nullptr;
    case Function::k_cos:
      return device ? e.instruction(llvm::Intrinsic::nvvm_cos_approx_ftz_f, x) : nullptr;
    case Function::k_tan:
      if (!device) return nullptr;
      return e.b.CreateIntrinsic(llvm::Intrinsic::nvvm_div_approx_ftz_f, {},
                                 {e.instruction(llvm::Intrinsic::nvvm_sin_approx_ftz_f, x),
                                  e.instruction(llvm::Intrinsic::nvvm_cos_approx_ftz_f, x)});
    case Function::k_tanh: {
      if (!device) return nullptr;
      llvm::InlineAsm* const tanh = llvm::InlineAsm::get(
          llvm::FunctionType::get(lowering.type(), {lowering.type()}, false), "tanh.approx.f32 $0, $1;", "=f,f", false);
      return e.b.CreateCall(tanh, {x});
    }
    default:
      return nullptr;
  }
}

}  // namespace srjit
