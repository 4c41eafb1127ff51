// The elementary functions that are programs (functions.def), generic in the domain T.
#pragma once

#include "ir/functions/arcs.h"
#include "ir/functions/circular.h"
#include "ir/functions/exponentials.h"
#include "ir/functions/hyperbolics.h"
#include "ir/functions/logarithms.h"
#include "ir/functions/powers.h"
#include "ir/functions/quotients.h"
#include "ir/ops.h"

namespace srjit::functions {

/// The value of a function that is a program over its operands; y is ignored by functions of one operand.
template <Precision kPrecision, class T>
T apply(Function function, const T& x, [[maybe_unused]] const T& y) {
  switch (function) {
#define SRJIT_FUNCTION(id, arity, code, ...) SRJIT_CASE_##code(id, arity)
#define SRJIT_CASE_kOperation(id, arity)
#define SRJIT_CASE_kProgram(id, arity) \
  case Function::k_##id:               \
    return SRJIT_CALL_##arity(id);
#define SRJIT_CALL_1(id) id<kPrecision>(x)
#define SRJIT_CALL_2(id) id<kPrecision>(x, y)
#include "ir/functions.def"
#undef SRJIT_FUNCTION
#undef SRJIT_CASE_kOperation
#undef SRJIT_CASE_kProgram
#undef SRJIT_CALL_1
#undef SRJIT_CALL_2
    default:
      __builtin_unreachable();
  }
}

/// The same for a precision that is known at run time.
template <class T>
T apply(Precision precision, Function function, const T& x, const T& y) {
  switch (precision) {
    case Precision::kF32:
      return apply<Precision::kF32>(function, x, y);
    case Precision::kF64:
      return apply<Precision::kF64>(function, x, y);
  }
  __builtin_unreachable();
}

}  // namespace srjit::functions
