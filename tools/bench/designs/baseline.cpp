#include "tools/bench/designs/baseline.h"

#include <algorithm>
#include <iterator>

#include <fmt/format.h>

#include "tools/bench/designs/code.h"
#include "tools/bench/designs/device.h"
#include "tools/bench/failure.h"

namespace srjit {
namespace {

template <auto kMake, auto... kArguments>
std::unique_ptr<Baseline> onDevice(const BenchData& data, unsigned ordinal) {
  return kMake(openBaselineDevice(ordinal), data, kArguments...);
}

// stack-each and ptx-each are the evaluators of the Julia thesis; stack-once, subtree-cache and nvrtc those of the MIT
// system; tree-arrays is that of EvoGP.
constexpr BaselineInfo kBaselines[] = {
    {"stack-once", "stack interpreter, one row per thread, stack in local memory, one launch for all expressions",
     onDevice<makeStackBaseline, StackLaunches::kOnce>},
    {"tree-arrays",
     "trees as arrays of one length, evaluated from the last node to the first, stack in local memory, a strip of rows "
     "per thread, one launch for all",
     onDevice<makeTreeBaseline>},
    {"subtree-cache",
     "subtrees hashed on the host, common ones evaluated once into device memory, the rest interpreted as stack-once",
     onDevice<makeCacheBaseline>},
    {"cpu-switch", "one row at a time, two switches per token, on all cores of the processor",
     [](const BenchData& data, unsigned) { return makeCpuSwitch(data); }},
    {"stack-each", "the interpreter of stack-once, one launch per expression",
     onDevice<makeStackBaseline, StackLaunches::kEach>},
    {"ptx-each", "PTX text per expression, compiled by the driver, one launch per expression",
     onDevice<makePtxBaseline>, 1, true},
    {"nvrtc", "C++ text for the population, 100 expressions per module, compiled by NVRTC", onDevice<makeNvrtcBaseline>,
     kNvrtcModuleExpressions, true},
};

constexpr BaselineOp kBaselineOps[] = {
#define SRJIT_BASELINE_OP(id, ptx, cuda) {Op::k##id, ptx, cuda},
#include "tools/bench/designs/operators.def"
#undef SRJIT_BASELINE_OP
};

}  // namespace

DataView BenchData::view() const {
  DataView view;
  for (const auto& column : columns) view.columns.emplace_back(column);
  view.target.emplace(target);
  return view;
}

std::span<const BaselineInfo> allBaselines() { return kBaselines; }

std::span<const BaselineOp> allBaselineOps() noexcept { return kBaselineOps; }

std::size_t baselineOpNumber(Op op) {
  const auto* const row = std::ranges::find(kBaselineOps, op, &BaselineOp::op);
  if (row != std::end(kBaselineOps)) return static_cast<std::size_t>(row - std::begin(kBaselineOps));
  failBench(Errc::kUnsupported, fmt::format("operator {}, which the baselines do not have", infoOf(op).name));
}

std::string fillBaselineOp(const char* cell, std::string_view x, std::string_view y, std::string_view r) {
  return fmt::format(fmt::runtime(cell), fmt::arg("x", x), fmt::arg("y", y), fmt::arg("r", r));
}

std::vector<std::uint32_t> parameterOffsets(std::span<const Expression> expressions) {
  std::vector<std::uint32_t> offsets = {0};
  offsets.reserve(expressions.size() + 1);
  for (const Expression& expression : expressions) offsets.push_back(offsets.back() + expression.parameterCount());
  return offsets;
}

}  // namespace srjit
