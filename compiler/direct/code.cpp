#include "compiler/direct/code.h"

namespace srjit::direct {
namespace {

template <std::size_t kCount>
constexpr auto kMachineOperands = [] {
  constexpr std::int32_t kForEver = 1 << 30;
  std::array<Code::Operand, kCount> operands;
  for (std::uint32_t i = 0; i < kCount; ++i) operands[i] = {kForEver, i};
  return operands;
}();

}  // namespace

void Code::clear() {
  operations_.clear();
  wide_literals_.clear();
  const auto& registers = kMachineOperands<kFirstValue>;
  const auto& predicates = kMachineOperands<kFirstPredicate>;
  values_.assign(registers.begin(), registers.end());
  truths_.assign(predicates.begin(), predicates.end());
  is_too_long_ = false;
}

}  // namespace srjit::direct
