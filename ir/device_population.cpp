#include "ir/device_population.h"

namespace srjit {

std::string_view textOf(DeviceFault fault) noexcept {
  switch (fault) {
    case DeviceFault::kNone:
      return "nothing is wrong";
    case DeviceFault::kLength:
      return "it has no tokens, too many, or tokens outside of the arrays";
    case DeviceFault::kCode:
      return "a token has a code that no operator has";
    case DeviceFault::kOperator:
      return "it has an operator that was not announced";
    case DeviceFault::kVariable:
      return "it has a variable that the data do not have";
    case DeviceFault::kParameter:
      return "it has a parameter, which has no value on a device";
    case DeviceFault::kOperands:
      return "an operator lacks operands";
    case DeviceFault::kRest:
      return "it has tokens that belong to no operator";
    case DeviceFault::kSlots:
      return "it keeps more values at once than there is room for";
  }
  return "the fault is unknown";
}

}  // namespace srjit
