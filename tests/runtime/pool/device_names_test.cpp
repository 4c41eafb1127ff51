// Names of several devices, and the engines that they give.
#include <gmock/gmock.h>

#include "runtime/pool/make_executor.h"
#include "runtime/pool/program.h"
#include "tests/runtime/pool/pooled_machine.h"

namespace srjit {
namespace {

using testing::HasSubstr;

Result<std::optional<std::vector<unsigned>>> ordinalsOf(std::string_view device) {
  return cudaOrdinals(device, [] { return Result<std::size_t>(std::size_t{3}); });
}

TEST(DeviceNames, Lists) {
  EXPECT_EQ(ordinalsOf("cuda:7").value().value(), std::vector<unsigned>({7}));
  EXPECT_EQ(ordinalsOf("cuda:2,0").value().value(), std::vector<unsigned>({2, 0}));
  EXPECT_EQ(ordinalsOf("cuda:all").value().value(), std::vector<unsigned>({0, 1, 2}));
  EXPECT_FALSE(ordinalsOf("cpu").value());
  EXPECT_FALSE(ordinalsOf("cuda").value());
  EXPECT_EQ(nameOfDevices({4}), "cuda:4");
  EXPECT_EQ(nameOfDevices({2, 0}), "cuda:2,0");
}

TEST(DeviceNames, MalformedLists) {
  for (const char* const device : {"cuda:", "cuda:,", "cuda:0,", "cuda:,1", "cuda:0;1", "cuda:0, 1", "cuda:-1",
                                   "cuda:all,0", "cuda:0,all", "cuda:99999999999"}) {
    const auto ordinals = ordinalsOf(device);
    ASSERT_FALSE(ordinals.ok()) << device;
    EXPECT_EQ(ordinals.error().code, Errc::kInvalid) << device;
    EXPECT_EQ(ordinals.error().message,
              fmt::format("device '{}', expected auto, cpu, cuda:N, a list as cuda:0,2, or cuda:all", device));
  }
  const auto twice = ordinalsOf("cuda:0,1,0");
  ASSERT_FALSE(twice.ok());
  EXPECT_EQ(twice.error().code, Errc::kInvalid);
  EXPECT_EQ(twice.error().message, "device 'cuda:0,1,0', which has cuda:0 twice");
}

TEST(DeviceNames, AreResolvedByTheEngine) {
  FakeMachine machine(manyDevices(3));
  EXPECT_EQ(machine.engine({.device = "cuda:all"}).options().device, "cuda:0,1,2");
  EXPECT_EQ(machine.engine({.device = "cuda:2,0"}).options().device, "cuda:2,0");
  EXPECT_EQ(machine.engine({.device = "cuda:1"}).options().device, "cuda:1");
  const Result<Engine> missing = machine.tryEngine({.device = "cuda:0,3"});
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().code, Errc::kMachine);
  EXPECT_EQ(missing.error().message, "device cuda:3, but this machine has 3 devices");
  EXPECT_EQ(machine.tryEngine({.device = "cuda:1,1"}).error().code, Errc::kInvalid);
}

TEST(DeviceNames, AllOfOneDeviceIsThatDevice) {
  FakeMachine machine;
  const Engine engine = machine.engine({.device = "cuda:all"});
  EXPECT_EQ(engine.options().device, "cuda:0");
  const Workload w = arithmeticWorkload(3, 4, 10, Precision::kF32);
  EXPECT_EQ(dynamic_cast<PoolProgram*>(engine.compile(w.expressions).state().code.get()), nullptr);
}

TEST(DeviceNames, AllWithoutADevice) {
  FakeMachine machine({.devices = {}});
  const Result<Engine> engine = machine.tryEngine({.device = "cuda:all"});
  ASSERT_FALSE(engine.ok());
  EXPECT_EQ(engine.error().code, Errc::kMachine);
  EXPECT_EQ(engine.error().message, "device cuda:all, but this machine has no device");
}

// What was asked for by name must be there.
TEST(DeviceNames, AllLeavesOutWhatCannotBeUsed) {
  FakeOptions options = manyDevices(3);
  options.devices[1].capability = 60;
  FakeMachine machine(options);
  const Engine engine = machine.engine({.device = "cuda:all"});
  EXPECT_EQ(engine.options().device, "cuda:0,2");
  ASSERT_EQ(engine.notices().size(), 1U);
  EXPECT_THAT(engine.notices()[0], HasSubstr("compute capability 6.0"));
  EXPECT_THAT(engine.notices()[0], testing::EndsWith("; the other devices compute without it"));
  EXPECT_EQ(machine.tryEngine({.device = "cuda:0,1"}).error().code, Errc::kUnsupported);
}

}  // namespace
}  // namespace srjit
