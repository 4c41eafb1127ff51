#include "runtime/program.h"

#include <algorithm>

#include <fmt/format.h>

#include "runtime/evaluation/program_state.h"
#include "runtime/fit/starts.h"
#include "runtime/platform/deadline.h"

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
  if (const std::optional<Program> with_code = state_->variants.find({})) return with_code->status();
  return state_->code == nullptr ? ProgramStatus{} : state_->code->status();
}

struct ProgramsMade::Slot {
  const Purpose purpose;
  std::timed_mutex mutex = {};
  std::optional<Program> program = {};
};

Program ProgramsMade::get(const Purpose& purpose, const Deadline& deadline, const std::function<Program()>& make) {
  const std::shared_ptr<Slot> slot = slotOf(purpose);
  const auto lock = lockUntil(deadline, slot->mutex);
  if (slot->program) return *slot->program;
  Program made = make();
  const bool has_failed =
      std::ranges::any_of(made.failures(), [](const Failure& failure) { return failure.error.code == Errc::kMachine; });
  if (!has_failed) slot->program = made;
  return made;
}

std::shared_ptr<ProgramsMade::Slot> ProgramsMade::slotOf(const Purpose& purpose) {
  const std::lock_guard lock(mutex_);
  const auto found =
      std::ranges::find(slots_, purpose, [](const auto& slot) -> const Purpose& { return slot->purpose; });
  if (found == slots_.end()) {
    constexpr std::size_t kMost = 16;
    const bool is_first_code = std::holds_alternative<std::monostate>(slots_.empty() ? purpose : slots_[0]->purpose);
    if (slots_.size() == kMost) slots_.erase(slots_.begin() + (is_first_code ? 1 : 0));
    return slots_.emplace_back(std::make_shared<Slot>(purpose));
  }
  std::rotate(found, found + 1, slots_.end());
  return slots_.back();
}

std::optional<Program> ProgramsMade::find(const Purpose& purpose) const {
  const std::lock_guard lock(mutex_);
  for (const std::shared_ptr<Slot>& slot : slots_) {
    if (slot->purpose != purpose) continue;
    const std::unique_lock is_ready(slot->mutex, std::try_to_lock);
    return is_ready ? slot->program : std::nullopt;
  }
  return {};
}

}  // namespace srjit
