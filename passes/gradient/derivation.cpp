#include "passes/gradient/derivation.h"

namespace srjit {

std::size_t Derivation::roots(std::size_t parameters) const noexcept {
  const std::size_t count = derivatives(parameters);
  switch (quantity) {
    case Quantity::kJacobian:
      return count;
    case Quantity::kLoss:
      return loss.terms() + targetTerms() + counts();
    case Quantity::kGradient:
      return loss.terms() * (1 + count) + targetTerms() + counts();
    case Quantity::kNormalEquations:
    case Quantity::kReweighted:
      return 1 + count + count * (count + 1) / 2 + counts();
    case Quantity::kTangent:
      return 1 + count + (weighted ? 1 : 0);
  }
  __builtin_unreachable();
}

}  // namespace srjit
