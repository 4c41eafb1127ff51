// The rows of ops.def as functions generic in the domain T.
//
// A domain T supplies: construction from double; + - * / and unary minus; the functions of functions.def; lt, le and eq
// giving a mask type; select(mask, T, T). They are found by argument-dependent lookup, for double in ir/real.h.
#pragma once

#include "ir/ops.h"
#include "ir/real.h"

namespace srjit {

/// The value of `op` over its operands; operands past its arity are ignored.
template <class T>
T applyRow(Op op, const T& x, [[maybe_unused]] const T& y, [[maybe_unused]] const T& z) {
  using namespace real;
  switch (op) {
#define SRJIT_OP(id, name, text, arity, props, value, dx, dy, dz, doc) \
  case Op::k##id:                                                      \
    return value;
#include "ir/ops.def"
#undef SRJIT_OP
  }
  __builtin_unreachable();
}

/// The partial derivative of `op` with respect to operand 0, 1 or 2, where r is the value at x, y, z.
template <class T>
T derivativeRow(Op op, int operand, const T& x, const T& y, [[maybe_unused]] const T& z, const T& r) {
  using namespace real;
  switch (op) {
#define SRJIT_OP(id, name, text, arity, props, value, dx, dy, dz, doc) \
  case Op::k##id:                                                      \
    return operand == 0 ? T(dx) : operand == 1 ? T(dy) : T(dz);
#include "ir/ops.def"
#undef SRJIT_OP
  }
  __builtin_unreachable();
}

}  // namespace srjit
