#include "runtime/program.h"

namespace srjit {

std::size_t Program::size() const noexcept { return state_->expressions.size(); }
std::size_t Program::parameterOffset(std::size_t expression) const noexcept {
  return state_->parameter_offsets[expression];
}
std::span<const Failure> Program::failures() const noexcept { return state_->failures; }
const ProgramInfo& Program::info() const noexcept { return state_->info; }

}  // namespace srjit
