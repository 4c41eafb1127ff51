// The approximate forms of f32 `fast`: instructions on a GPU, short polynomials on the host. Subnormal operands and
// results may count as zero. The bounds are in ir/functions.def.
#pragma once

#include <span>

#include <llvm/IR/Value.h>

#include "compiler/lowering/operators.h"
#include "ir/op.h"

namespace srjit {

/// The approximate form of `function` in f32 `fast`, or null where fast uses the precise form.
llvm::Value* emitApproximate(Lowering& lowering, Function function, std::span<llvm::Value* const> arguments);

/// x / y in f32 `fast`.
llvm::Value* emitApproximateQuotient(Lowering& lowering, const Value& x, const Value& y);

}  // namespace srjit
