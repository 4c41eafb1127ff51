// Losses as text: what the command's --loss and the bindings read.
#pragma once

#include <string_view>

#include "ir/error.h"
#include "runtime/engine_options.h"

namespace srjit {

/// Of "mse", "huber:2" (a name of losses.def, and its constant), or "abs(f - y)^1.5" (a custom loss: an infix
/// expression over the prediction f, the target y and the weight w): the loss, with NanPolicy::kPropagate. Errors:
/// kInvalid without a place for a single word that is no loss, with the names of all, and for a constant that is no
/// number; for an expression those of parse(), and kSyntax for other operands than f, y and w, such as x0 or p0.
/// Whether a loss has a constant, and its range, is checked where it is used. Thread-safe.
Result<LossOptions> parseLoss(std::string_view text);

}  // namespace srjit
