#include "tools/bench/designs/tables.h"

#include <algorithm>

#include <fmt/args.h>
#include <fmt/format.h>

#include "tools/bench/failure.h"

namespace srjit {
namespace {

constexpr BaselineOp kBaselineOps[] = {
#define SRJIT_BASELINE_OP(id, ptx, cuda) {Op::k##id, ptx, cuda},
#include "tools/bench/designs/operators.def"
#undef SRJIT_BASELINE_OP
};

constexpr LibraryFunction kLibraryFunctions[] = {
#define SRJIT_LIBRARY_FUNCTION(id, code, x_low, x_high, y_low, y_high) {Op::k##id, #code, x_low, x_high, y_low, y_high},
#include "tools/bench/designs/functions.def"
#undef SRJIT_LIBRARY_FUNCTION
};

}  // namespace

std::span<const BaselineOp> allBaselineOps() noexcept { return kBaselineOps; }
std::span<const LibraryFunction> allLibraryFunctions() noexcept { return kLibraryFunctions; }

std::size_t baselineOpNumber(Op op) {
  const auto* const row = std::ranges::find(kBaselineOps, op, &BaselineOp::op);
  if (row != std::end(kBaselineOps)) return static_cast<std::size_t>(row - std::begin(kBaselineOps));
  failBench(Errc::kUnsupported, fmt::format("operator {}, which the baselines do not have", infoOf(op).name));
}

std::string fillBaselineOp(const char* cell, std::string_view x, std::string_view y, std::string_view r) {
  return fmt::format(fmt::runtime(cell), fmt::arg("x", x), fmt::arg("y", y), fmt::arg("r", r));
}

}  // namespace srjit
