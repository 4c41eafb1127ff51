// Programs from token arrays on a model of a GPU.
#include <gtest/gtest.h>

#include "tests/generators/token_arrays.h"
#include "tests/gpu_model/device_engine.h"

namespace srjit {
namespace {

TEST(CompileArraysForGpu, GivesTheBitsOfTheProcessor) {
  const Workload w = arithmeticWorkload(8, 200, 100, Precision::kF32);
  TokenArrays arrays;
  for (const Expression& expression : w.expressions) arrays.addPostfix(expression);
  arrays.add(Token::operation(Op::kNeg));
  arrays.end();
  FakeMachine machine;
  const Engine engine = machine.engine({.math = Math::kStrict}), cpu = cpuEngine(Precision::kF32);
  const Dataset data = engine.upload(w.view()).value(), on_cpu = cpu.upload(w.view()).value();
  const Losses expected = cpu.loss(cpu.compile(arrays.view()).value(), on_cpu, w.parameters).value();
  EXPECT_EQ(expected.failures.size(), 1U);
  for (const Tier tier : {Tier::kInterpret, Tier::kCompile, Tier::kAuto}) {
    const Program program = engine.compile(arrays.view(), {.tier = tier}).value();
    ASSERT_EQ(program.failures().size(), 1U);
    EXPECT_EQ(program.failures()[0].expression, w.expressions.size());
    expectSameLosses(engine.loss(program, data, w.parameters).value(), expected, "arrays");
  }
}

}  // namespace
}  // namespace srjit
