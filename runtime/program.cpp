#include "runtime/program.h"

#include <fmt/format.h>

#include "runtime/evaluation/program_state.h"
#include "runtime/fit/starts.h"
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

Result<std::vector<double>> Program::drawStarts(std::span<const double> given, std::size_t count, std::uint64_t seed,
                                                std::span<const std::size_t> numbers) const {
  const std::size_t all = parameterOffset(size());
  if (given.size() != all) {
    return Error{
        Errc::kInvalid, fmt::format("{} start values: expected the program's {} parameters", given.size(), all), {}};
  }
  if (count == 0) return Error{Errc::kInvalid, "0 starts: expected at least 1", {}};
  if (!numbers.empty() && numbers.size() != size()) {
    return Error{Errc::kInvalid, fmt::format("{} numbers of {} expressions", numbers.size(), size()), {}};
  }
  std::vector<std::int64_t> offsets;
  for (std::size_t e = 0; e <= size(); ++e) offsets.push_back(static_cast<std::int64_t>(parameterOffset(e)));
  return fit::drawStarts(given, offsets, count, seed, numbers);
}

ProgramStatus Program::status() const {
  if (const std::optional<Program> with_code = state_->code.find({})) return with_code->status();
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
