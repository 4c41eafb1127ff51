#include "tests/faults/points.h"

#include <algorithm>

#include "compiler/lowering/llvm_scope.h"
#include "tests/faults/spared_scope.h"

namespace srjit {
namespace {

Injection planned{};
std::atomic<bool> is_planned = false;
std::atomic<std::size_t> counted = 0;
std::atomic<bool> has_failed = false;

}  // namespace

void inject(const Injection& injection) {
  planned = injection;
  counted = 0;
  has_failed = false;
  is_planned = true;
}

std::size_t endInjection() noexcept {
  is_planned = false;
  return counted;
}

bool hasFailed() noexcept { return has_failed; }
int injectedNumber() noexcept { return planned.number; }

bool failsHere(PointKind kind, std::string_view name) noexcept {
  if (!is_planned || planned.kind != kind || SparedScope::here()) return false;
  if (kind == PointKind::kAllocation && LlvmScope::here()) return false;
  if (kind == PointKind::kSystem && std::ranges::find(planned.calls, name) == planned.calls.end()) return false;
  const std::size_t number = ++counted;
  const bool fails = planned.n > 0 && (number == planned.n || (planned.is_lasting && number > planned.n));
  if (fails) has_failed = true;
  return fails;
}

}  // namespace srjit
