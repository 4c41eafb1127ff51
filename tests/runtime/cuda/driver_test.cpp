// Loading the driver: missing parts are reported with names and versions.
#include "runtime/cuda/driver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compiler/loader/shared_library.h"
#include "tests/gpu_model/fake_driver.h"

namespace srjit {
namespace {

using testing::HasSubstr;

TEST(Driver, MissingLibraryIsAnError) {
  const auto driver = openDriver("libsrjit-no-such-driver.so.1");
  ASSERT_FALSE(driver);
  EXPECT_EQ(driver.error().code, Errc::kMachine);
  EXPECT_EQ(driver.error().message,
            "no CUDA driver: " + SharedLibrary::open("libsrjit-no-such-driver.so.1").error().message);
}

TEST(Driver, ForeignLibraryIsAnError) {
  const auto driver = openDriver("libm.so.6");
  ASSERT_FALSE(driver);
  EXPECT_EQ(driver.error().code, Errc::kMachine);
  EXPECT_EQ(
      driver.error().message,
      "the CUDA driver lacks cuGetProcAddress_v2, which CUDA 12.0 has; this driver is of CUDA an unknown version");
}

TEST(Driver, IsLoadedOnce) {
  const auto first = loadDriver(), second = loadDriver();
  ASSERT_EQ(first.ok(), second.ok());
  if (first) {
    EXPECT_EQ(first->get(), second->get());
  } else {
    EXPECT_EQ(first.error().message, second.error().message);
  }
}

TEST(Driver, BindsEveryEntry) {
  const FakeDriver fake;
  const auto driver = fake.load();
  ASSERT_TRUE(driver) << driver.error().message;
#define SRJIT_DRIVER(name, version, parameters) EXPECT_NE((*driver)->name, nullptr) << #name;
#include "runtime/cuda/driver.def"
#undef SRJIT_DRIVER
  EXPECT_EQ(fake.count("cuInit"), 1u);
}

TEST(Driver, OldVersionIsReportedWithItsMissingEntry) {
  const FakeDriver fake({.version = 11040});
  const auto driver = fake.load();
  ASSERT_FALSE(driver);
  EXPECT_EQ(driver.error().code, Errc::kMachine);
  EXPECT_EQ(driver.error().message,
            "the CUDA driver lacks cuGraphAddKernelNode, which CUDA 12.0 has; this driver is of CUDA 11.4");
  EXPECT_EQ(fake.count("cuInit"), 0u);
}

TEST(Driver, EveryMissingEntryIsReported) {
#define SRJIT_DRIVER(name, version, parameters)                                     \
  {                                                                                 \
    const FakeDriver fake({.missing = {#name}});                                    \
    const auto driver = fake.load();                                                \
    ASSERT_FALSE(driver) << #name;                                                  \
    EXPECT_THAT(driver.error().message, HasSubstr("lacks " #name ", which CUDA ")); \
  }
#include "runtime/cuda/driver.def"
#undef SRJIT_DRIVER
}

TEST(Driver, FailureOfInitIsReported) {
  FakeDriver fake;
  fake.failAt("cuInit", 1, CUDA_ERROR_NO_DEVICE);
  const auto driver = fake.load();
  ASSERT_FALSE(driver);
  EXPECT_EQ(driver.error().code, Errc::kMachine);
  EXPECT_EQ(driver.error().message, "cuInit failed: 100 CUDA_ERROR_NO_DEVICE, no CUDA-capable device is detected");
}

TEST(Driver, DescribesUnknownErrors) {
  const FakeDriver fake;
  const auto driver = fake.load();
  ASSERT_TRUE(driver);
  EXPECT_EQ(describe(**driver, 12345), "12345 an unknown error, without a description");
}

TEST(Driver, FormatsVersions) {
  EXPECT_EQ(cudaVersionText(12040), "12.4");
  EXPECT_EQ(cudaVersionText(2000), "2.0");
}

TEST(Driver, OutlivesTheFakeDriver) {
  std::shared_ptr<const Driver> driver;
  {
    const FakeDriver fake;
    driver = fake.load().value();
  }
  int count = 0;
  EXPECT_EQ(driver->cuDeviceGetCount(&count), CUDA_ERROR_DEINITIALIZED);
}

}  // namespace
}  // namespace srjit
