#include "tools/bench/baselines/operators.h"

#include <array>

#include <fmt/args.h>
#include <fmt/format.h>

#include "tools/bench/failure.h"

namespace srjit {
namespace {

constexpr BaselineOp kOps[] = {
#define SRJIT_BASELINE_OP(id, ptx, cuda) {Op::k##id, ptx, cuda},
#include "tools/bench/baselines/operators.def"
#undef SRJIT_BASELINE_OP
};
constexpr std::uint8_t kAbsent = 0xff;

constexpr std::array<std::uint8_t, kOpCount> kNumbers = [] {
  std::array<std::uint8_t, kOpCount> numbers{};
  numbers.fill(kAbsent);
  for (std::size_t i = 0; i < std::size(kOps); ++i) {
    numbers[static_cast<std::size_t>(kOps[i].op)] = static_cast<std::uint8_t>(i);
  }
  return numbers;
}();

}  // namespace

std::span<const BaselineOp> allBaselineOps() noexcept { return kOps; }

std::size_t baselineOpNumber(Op op) {
  const std::uint8_t number = kNumbers[static_cast<std::size_t>(op)];
  if (number == kAbsent) {
    throw BenchFailure{
        {Errc::kUnsupported, fmt::format("operator {}, which the baselines do not have", infoOf(op).name), {}}};
  }
  return number;
}

std::string fillBaselineOp(const char* cell, std::string_view x, std::string_view y, std::string_view r) {
  return fmt::format(fmt::runtime(cell), fmt::arg("x", x), fmt::arg("y", y), fmt::arg("r", r));
}

}  // namespace srjit
