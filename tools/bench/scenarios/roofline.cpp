#include "tools/bench/scenarios/roofline.h"

#include <tbb/parallel_for.h>

#include "compiler/handler_table.h"
#include "runtime/cuda_context.h"
#include "runtime/optimized_dag.h"

namespace srjit {
namespace {

using Json = nlohmann::ordered_json;

// Driver API, CUdevice_attribute: kHz, kHz, bits.
constexpr CUdevice_attribute kClockRate = 13, kMemoryClockRate = 36, kBusWidth = 37;
constexpr double kIssueLanes = 128, kSpecialLanes = 16;
constexpr double kTransfersACycle = 2;

double approximationsOf(Op op) {
  switch (op) {
    case Op::kDiv:
    case Op::kInv:
    case Op::kSqrt:
    case Op::kExp:
    case Op::kLog:
    case Op::kSin:
    case Op::kCos:
      return 1;
    case Op::kPow:
      return 2;
    default:
      return 0;
  }
}

}  // namespace

RowCost rowCost(std::span<const Expression> expressions) {
  std::vector<RowCost> costs(expressions.size());
  const Pipeline pipeline = Pipeline::standard(Math::kFast);
  tbb::parallel_for(std::size_t{0}, expressions.size(), [&](std::size_t e) {
    const auto dag = optimizedDag(expressions.subspan(e, 1), pipeline, Precision::kF32, Math::kFast);
    if (!dag) return;
    for (const Node& node : dag->nodes()) {
      if (node.kind != Token::Kind::kOp) continue;
      costs[e].instructions += codeWeight(node.op, Precision::kF32, Math::kFast);
      costs[e].special += approximationsOf(node.op);
    }
  });
  RowCost all{.tokens = nodesOf(expressions)};
  for (const RowCost& cost : costs) {
    all.instructions += cost.instructions;
    all.special += cost.special;
  }
  return all;
}

Json deviceLimits(const BenchContext& context) {
  if (!context.onGpu()) return nullptr;
  const auto driver = must(loadDriver());
  const auto cuda = must(Cuda::open(driver, static_cast<int>(context.ordinal())));
  CUdevice device = 0;
  cuda->check(driver->cuDeviceGet(&device, static_cast<int>(context.ordinal())), "cuDeviceGet");
  const auto attribute = [&](CUdevice_attribute which) {
    int value = 0;
    cuda->check(driver->cuDeviceGetAttribute(&value, which, device), "cuDeviceGetAttribute");
    return static_cast<double>(value);
  };
  return {{"multiprocessors", cuda->limits().multiprocessors},
          {"clock_hz", attribute(kClockRate) * 1e3},
          {"bytes_per_second", kTransfersACycle * attribute(kMemoryClockRate) * 1e3 * attribute(kBusWidth) / 8},
          {"issue_lanes", kIssueLanes},
          {"special_lanes", kSpecialLanes}};
}

Json leastSeconds(const Json& limits, const RowCost& cost, double rows, double bytes) {
  if (limits.is_null()) return nullptr;
  const double cycles = limits["clock_hz"].get<double>() * limits["multiprocessors"].get<double>();
  return {{"issue", cost.instructions * rows / (kIssueLanes * cycles)},
          {"special", cost.special * rows / (kSpecialLanes * cycles)},
          {"bandwidth", bytes / limits["bytes_per_second"].get<double>()}};
}

}  // namespace srjit
