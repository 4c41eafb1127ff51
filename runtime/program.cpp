#include "runtime/program.h"

#include "runtime/evaluation/program_state.h"
#include "runtime/host/batches.h"
#include "runtime/pool/program.h"
#include "runtime/tiers/device_program.h"

namespace srjit {

std::size_t Program::size() const noexcept { return state_->source->expressions.size(); }
std::size_t Program::parameterOffset(std::size_t expression) const noexcept {
  return state_->source->parameterOffset(expression);
}
std::span<const Failure> Program::failures() const noexcept { return state_->failures; }
const ProgramInfo& Program::info() const noexcept { return state_->info; }

ProgramStatus Program::status() const {
  if (state_->on_device != nullptr) return state_->on_device->status();
  if (state_->on_pool != nullptr) return state_->on_pool->status();
  ProgramStatus status;
  if (state_->batches == nullptr) return status;
  for (const HostBatch& batch : state_->batches->batches()) {
    (batch.code ? status.served.compiled : status.served.interpreted) += batch.expressions.size();
  }
  status.compiled = status.served.compiled;
  if (status.compiled > 0) status.tier = Tier::kCompile;
  return status;
}

}  // namespace srjit
