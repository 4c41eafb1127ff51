// The list of baselines. stack-each and ptx-each are the two evaluators of the Julia thesis whose scenarios the
// benchmark repeats; stack-once, nvrtc and subtree-cache are the evaluators of the MIT system whose scaling curves it
// repeats; tree-arrays is the evaluator of EvoGP.
#include "tools/bench/baselines/design.h"

#include "tools/bench/baselines/designs/cpu_switch.h"
#include "tools/bench/baselines/device.h"

namespace srjit {
namespace {

template <auto kMake, auto... kArguments>
std::unique_ptr<Baseline> onDevice(const BaselineData& data) {
  return kMake(openBaselineDevice(data.ordinal), data, kArguments...);
}

// Designs with fast preparation come first; time they do not use is left to the others.
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
    {"cpu-switch", "one row at a time, two switches per token, on all cores of the processor", makeCpuSwitch},
    {"stack-each", "the interpreter of stack-once, one launch per expression",
     onDevice<makeStackBaseline, StackLaunches::kEach>},
    {"ptx-each", "PTX text per expression, compiled by the driver, one launch per expression",
     onDevice<makePtxBaseline>, 1, true},
    {"nvrtc", "C++ text for the population, 100 expressions per module, compiled by NVRTC",
     onDevice<makeNvrtcBaseline, Math::kFast>, kNvrtcModuleExpressions, true},
};

}  // namespace

std::vector<std::uint32_t> parameterOffsets(std::span<const Expression> expressions) {
  std::vector<std::uint32_t> offsets = {0};
  offsets.reserve(expressions.size() + 1);
  for (const Expression& expression : expressions) offsets.push_back(offsets.back() + expression.parameterCount());
  return offsets;
}

std::span<const BaselineInfo> allBaselines() { return kBaselines; }

}  // namespace srjit
