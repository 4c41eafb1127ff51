// Faults, systematically: every scenario with every fault that it can have. Each pair is a test, and each scenario a
// suite.
#include <unistd.h>

#include <cstdlib>
#include <string>

#include <gtest/gtest.h>

#include "tests/faults/loop.h"

namespace srjit {
namespace {

class EveryPoint : public testing::Test {
 public:
  EveryPoint(const Scenario& scenario, const FaultKind& kind) : scenario_(scenario), kind_(kind) {}
  void TestBody() override { tryEveryPoint(scenario_, kind_); }

 private:
  const Scenario& scenario_;
  const FaultKind& kind_;
};

void registerTests(std::span<const Scenario> scenarios) {
  for (const Scenario& scenario : scenarios) {
    for (const FaultKind& kind : faultKinds()) {
      if ((scenario.uses & kind.uses) != kind.uses) continue;
      testing::RegisterTest(("Faults/" + std::string(scenario.name)).c_str(), std::string(kind.name).c_str(), nullptr,
                            nullptr, __FILE__, __LINE__,
                            [&scenario, &kind]() -> testing::Test* { return new EveryPoint(scenario, kind); });
    }
  }
}

}  // namespace
}  // namespace srjit

int main(int count, char** arguments) {
  // Scratch folders in memory, if the system has them there: how long a disk takes is not what is tested.
  if (access("/dev/shm", W_OK) == 0) setenv("TMPDIR", "/dev/shm", 0);
  srjit::namePointOfCrash();
  testing::InitGoogleTest(&count, arguments);
  for (const auto scenarios :
       {srjit::gpuScenarios(), srjit::hostScenarios(), srjit::fileScenarios(), srjit::cScenarios()}) {
    srjit::registerTests(scenarios);
  }
  return RUN_ALL_TESTS();
}
