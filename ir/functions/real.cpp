#include "ir/real.h"

#include "ir/functions/programs.h"

namespace srjit::real {

#define SRJIT_FUNCTION(id, arity, code, ...) SRJIT_DEFINE_##code(id, arity)
#define SRJIT_DEFINE_kOperation(id, arity)
#define SRJIT_DEFINE_kProgram(id, arity) SRJIT_DEFINE_##arity(id)
#define SRJIT_DEFINE_1(id)                                        \
  float id(float x) { return functions::id<Precision::kF32>(x); } \
  double id(double x) { return functions::id<Precision::kF64>(x); }
#define SRJIT_DEFINE_2(id)                                                    \
  float id(float x, float y) { return functions::id<Precision::kF32>(x, y); } \
  double id(double x, double y) { return functions::id<Precision::kF64>(x, y); }
#include "ir/functions.def"
#undef SRJIT_FUNCTION
#undef SRJIT_DEFINE_kOperation
#undef SRJIT_DEFINE_kProgram
#undef SRJIT_DEFINE_1
#undef SRJIT_DEFINE_2

}  // namespace srjit::real
