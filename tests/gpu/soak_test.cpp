// Long comparisons of tiers, bit for bit, on real hardware: SRJIT_SOAK_SECONDS each (default 2).
#include "tests/gpu/soak.h"

#include "tests/gpu/machine.h"

namespace srjit {
namespace {

class Soak : public GpuInMode {
 protected:
  Evaluator tier(Tier tier) const { return {engine(), tier}; }
};

TEST_P(Soak, DirectCodeAndTheInterpreter) {
  if (engine().options().device == "cpu") GTEST_SKIP() << "the processor has no direct tier";
  soak(tier(Tier::kDirect), tier(Tier::kInterpret), mode().precision);
}

// LLVM and the assembler take milliseconds for an expression.
TEST_P(Soak, LlvmsCodeAndTheInterpreter) {
  constexpr std::size_t kMostExpressions = 40;
  soak(tier(Tier::kCompile), tier(Tier::kInterpret), mode().precision, kMostExpressions);
}

class ProcessorSoak : public Soak {};

TEST_P(ProcessorSoak, BothInterpreters) {
  if (engine().options().device == "cpu") GTEST_SKIP() << "the processor would be compared with itself";
  const Engine cpu = Engine::create({.device = "cpu", .precision = mode().precision, .math = mode().math}).value();
  soak(tier(Tier::kInterpret), {cpu, Tier::kInterpret}, mode().precision);
}

INSTANTIATE_TEST_SUITE_P(Modes, Soak, testing::ValuesIn(allModes()), modeName);
INSTANTIATE_TEST_SUITE_P(Modes, ProcessorSoak, testing::ValuesIn(modesOfTheProcessor()), modeName);

}  // namespace
}  // namespace srjit
