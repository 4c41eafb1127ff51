#include "runtime/program.h"

#include <algorithm>

#include "runtime/device_program.h"

namespace srjit {

void ProgramSource::add(const Expression& expression) {
  expressions.push_back(expression);
  parameter_offsets.push_back(parameter_offsets.back() + expression.parameterCount());
  variables = std::max(variables, expression.variableCount());
}

std::size_t Program::size() const noexcept { return state_->source->expressions.size(); }
std::size_t Program::parameterOffset(std::size_t expression) const noexcept {
  return state_->source->parameter_offsets[expression];
}
std::span<const Failure> Program::failures() const noexcept { return state_->failures; }
const ProgramInfo& Program::info() const noexcept { return state_->info; }

ProgramStatus Program::status() const {
  if (state_->on_device != nullptr) return state_->on_device->status();
  ProgramStatus status{.tier = state_->info.tier};
  if (status.tier == Tier::kCompile && state_->batches != nullptr) {
    for (const HostBatch& batch : state_->batches->batches()) status.compiled += batch.code ? batch.outputs() : 0;
  }
  return status;
}

}  // namespace srjit
