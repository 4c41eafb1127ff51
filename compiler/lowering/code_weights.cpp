#include "compiler/lowering/code_weights.h"

#include <initializer_list>

#include "ir/ops.h"
#include "ir/rows.h"

namespace srjit {
namespace {

// The domain that counts instructions: an estimate of the cost of a row of ops.def on a GPU.
struct Weight {
  Weight(double) {}
  static Weight of(int instructions) {
    Weight weight(0.0);
    weight.instructions = instructions;
    return weight;
  }
  int instructions = 0;
};

// The mode of the current count, since the domain's operators take no argument for it.
struct Mode {
  bool approximate = false;
  bool propagates_nan = false;  // whether the minimum and the maximum are one instruction
};
thread_local Mode mode;

// min.NaN and max.NaN of PTX.
bool propagatesNan(Precision precision) {
  switch (precision) {
    case Precision::kF32:
      return true;
    case Precision::kF64:
      return false;
  }
  __builtin_unreachable();
}

constexpr int kLibraryCall = 60;
constexpr int kRoundedDivision = 20;

Weight sum(std::initializer_list<Weight> operands, int own) {
  for (const Weight& operand : operands) own += operand.instructions;
  return Weight::of(own);
}

Weight operator+(Weight x, Weight y) { return sum({x, y}, 1); }
Weight operator-(Weight x, Weight y) { return sum({x, y}, 1); }
Weight operator*(Weight x, Weight y) { return sum({x, y}, 1); }
Weight operator/(Weight x, Weight y) { return sum({x, y}, mode.approximate ? 2 : kRoundedDivision); }
Weight operator-(Weight x) { return x; }
Weight lt(Weight x, Weight y) { return sum({x, y}, 1); }
Weight le(Weight x, Weight y) { return sum({x, y}, 1); }
Weight eq(Weight x, Weight y) { return sum({x, y}, 1); }
Weight select(Weight mask, Weight x, Weight y) { return sum({mask, x, y}, 1); }

int weightOf(Function function) {
  switch (function) {
    case Function::k_abs:
      return 0;
    case Function::k_copysign:
    case Function::k_floor:
    case Function::k_ceil:
    case Function::k_rint:
    case Function::k_fma:
      return 1;
    case Function::k_minimum:
    case Function::k_maximum:
      return mode.propagates_nan ? 1 : 8;
    case Function::k_sqrt:
      return mode.approximate ? 1 : kRoundedDivision;
    case Function::k_exp2:
    case Function::k_log2:
    case Function::k_sin:
    case Function::k_cos:
    case Function::k_tanh:
      return mode.approximate ? 1 : kLibraryCall;
    case Function::k_exp:
    case Function::k_log:
    case Function::k_log10:
      return mode.approximate ? 2 : kLibraryCall;
    case Function::k_tan:
      return mode.approximate ? 4 : kLibraryCall;
    case Function::k_pow:
      return mode.approximate ? 14 : kLibraryCall;
    default:
      return kLibraryCall;
  }
}

#define SRJIT_FUNCTION(id, arity, ...) SRJIT_DEFINE_##arity(id)
#define SRJIT_DEFINE_1(id) \
  Weight id(Weight x) { return sum({x}, weightOf(Function::k_##id)); }
#define SRJIT_DEFINE_2(id) \
  Weight id(Weight x, Weight y) { return sum({x, y}, weightOf(Function::k_##id)); }
#define SRJIT_DEFINE_3(id) \
  Weight id(Weight x, Weight y, Weight z) { return sum({x, y, z}, weightOf(Function::k_##id)); }
#include "ir/functions.def"
#undef SRJIT_FUNCTION
#undef SRJIT_DEFINE_1
#undef SRJIT_DEFINE_2
#undef SRJIT_DEFINE_3

}  // namespace

unsigned codeWeight(Op op, Precision precision, Math math) {
  mode = {isApproximate(math, precision), propagatesNan(precision)};
  const Weight operand = Weight::of(0);
  return static_cast<unsigned>(applyRow<Weight>(op, operand, operand, operand).instructions);
}

CodeWeights codeWeights(Precision precision, Math math) {
  CodeWeights weights{};
  for (std::size_t op = 0; op < kOpCount; ++op) weights[op] = codeWeight(static_cast<Op>(op), precision, math);
  return weights;
}

}  // namespace srjit
