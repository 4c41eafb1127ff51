#include "tools/bench/scenarios/roofline.h"

#include <array>
#include <atomic>
#include <string_view>

#include <tbb/parallel_for.h>

#include "compiler/lowering/code_weights.h"
#include "compiler/nvptx/options.h"
#include "compiler/nvptx/rows_kernel.h"
#include "ir/ops.h"
#include "runtime/cuda/context.h"
#include "runtime/evaluation/optimized_dag.h"

namespace srjit {
namespace {

using Json = nlohmann::ordered_json;

// Driver API, CUdevice_attribute: kHz, kHz, bits.
constexpr CUdevice_attribute kClockRate = 13, kMemoryClockRate = 36, kBusWidth = 37;
constexpr double kIssueLanes = 128, kSpecialLanes = 16;
constexpr double kTransfersACycle = 2;

/// Approximate instructions of an operator for one row, counted in its PTX. Throws BenchFailure.
double approximationsOf(Op op) {
  Dag graph(Precision::kF32);
  std::vector<NodeId> operands;
  for (int i = 0; i < arityOf(op); ++i) operands.push_back(graph.variable(static_cast<std::uint32_t>(i)));
  graph.addRoot(graph.apply(op, operands));
  DeviceOptions options;
  options.math = Math::kFast;
  const std::string ptx = must(rowsPtx({&graph, 1}, options));
  const std::string_view word = ".approx.";
  double count = 0;
  for (std::size_t place = 0; (place = ptx.find(word, place)) != std::string::npos; place += word.size()) ++count;
  return count / options.rows_per_thread;
}

}  // namespace

RowCost rowCost(std::span<const Expression> expressions) {
  std::array<std::atomic<std::size_t>, kOpCount> uses{};
  const Pipeline pipeline = Pipeline::standard(Math::kFast);
  tbb::parallel_for(std::size_t{0}, expressions.size(), [&](std::size_t e) {
    const auto dag = optimizedDag(expressions.subspan(e, 1), pipeline, Precision::kF32, Math::kFast);
    if (!dag) return;
    for (const Node& node : dag->nodes()) {
      if (node.kind == Token::Kind::kOp) ++uses[static_cast<std::size_t>(node.op)];
    }
  });
  RowCost all{.tokens = nodesOf(expressions)};
  for (std::size_t i = 0; i < kOpCount; ++i) {
    if (uses[i] == 0) continue;
    const auto count = static_cast<double>(uses[i]);
    all.instructions += count * codeWeight(static_cast<Op>(i), Precision::kF32, Math::kFast);
    all.special += count * approximationsOf(static_cast<Op>(i));
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
