#include "tools/bench/designs/baseline.h"

#include <algorithm>
#include <iterator>

#include <fmt/format.h>

#include "tools/bench/designs/code.h"
#include "tools/bench/designs/device.h"

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
     onDevice<makeStackBaseline, kMaxGridY>},
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
     onDevice<makeStackBaseline, std::size_t{1}>},
    {"ptx-each", "PTX text per expression, compiled by the driver, one launch per expression",
     onDevice<makePtxBaseline>, 1, true},
    {"nvrtc", "C++ text for the population, 100 expressions per module, compiled by NVRTC", onDevice<makeNvrtcBaseline>,
     kNvrtcModuleExpressions, true},
};

/// A power is defined as in sr-jit's `fast`, so that results can be compared: |x|^y by logarithms; for x < 0 with the
/// sign of an odd y, NaN for a fraction; 1 for y = 0.
constexpr BaselineOp kBaselineOps[] = {
    {Op::kAdd, "add.rn.f32 {r}, {x}, {y};", "{x} + {y}"},
    {Op::kSub, "sub.rn.f32 {r}, {x}, {y};", "{x} - {y}"},
    {Op::kMul, "mul.rn.f32 {r}, {x}, {y};", "{x} * {y}"},
    {Op::kDiv, "div.approx.ftz.f32 {r}, {x}, {y};", "{x} / {y}"},
    {Op::kPow,
     "abs.f32 %ta, {x};\n lg2.approx.ftz.f32 %ta, %ta;\n mul.rn.f32 %ta, %ta, {y};\n"
     " ex2.approx.ftz.f32 %ta, %ta;\n abs.f32 %tb, {y};\n min.f32 %tb, %tb, 0f4B000000;\n"
     " add.rn.f32 %tc, %tb, 0f4B000000;\n mov.b32 %ia, %tc;\n shl.b32 %ia, %ia, 31;\n"
     " sub.rn.f32 %tc, %tc, 0f4B000000;\n setp.eq.f32 %pa, %tc, %tb;\n mov.b32 %ib, %ta;\n"
     " xor.b32 %ib, %ib, %ia;\n mov.b32 %tb, %ib;\n selp.f32 %tb, %tb, 0f7FC00000, %pa;\n"
     " setp.lt.f32 %pb, {x}, 0f00000000;\n selp.f32 %ta, %tb, %ta, %pb;\n"
     " setp.eq.f32 %pa, {y}, 0f00000000;\n selp.f32 {r}, 0f3F800000, %ta, %pa;",
     "power({x}, {y})"},
    {Op::kAbs, "abs.f32 {r}, {x};", "fabsf({x})"},
    {Op::kLog, "lg2.approx.ftz.f32 %ta, {x};\n mul.rn.f32 {r}, %ta, 0f3F317218;", "logf({x})"},
    {Op::kExp, "mul.rn.f32 %ta, {x}, 0f3FB8AA3B;\n ex2.approx.ftz.f32 {r}, %ta;", "expf({x})"},
    {Op::kInv, "rcp.approx.ftz.f32 {r}, {x};", "1.0f / {x}"},
    {Op::kSqrt, "sqrt.approx.ftz.f32 {r}, {x};", "sqrtf({x})"},
    {Op::kSquare, "mul.rn.f32 {r}, {x}, {x};", "{x} * {x}"},
    {Op::kNeg, "neg.f32 {r}, {x};", "-{x}"},
    {Op::kSin, "sin.approx.ftz.f32 {r}, {x};", "sinf({x})"},
    {Op::kCos, "cos.approx.ftz.f32 {r}, {x};", "cosf({x})"},
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
