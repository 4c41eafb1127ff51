#include <sys/stat.h>

#include <gmock/gmock.h>

#include "tests/generators/scratch.h"
#include "tests/gpu_model/device_engine.h"
#include "tools/evaluation.h"

namespace srjit {
namespace {

std::string noticeOf(const std::string& directory) {
  FakeMachine machine;
  const Engine engine = machine.engine({.cache_directory = directory});
  testing::internal::CaptureStderr();
  noticeCacheFault(engine);
  return testing::internal::GetCapturedStderr();
}

TEST(CacheNotice, ReportsWhyKernelsAreNotCached) {
  const Scratch scratch;
  const std::string directory = scratch.path("cache");
  EXPECT_EQ(noticeOf(directory), "");
  EXPECT_EQ(noticeOf(""), "") << "as it was asked for";
  chmod(directory.c_str(), 0777);
  EXPECT_EQ(noticeOf(directory),
            "sr-jit: the kernel cache is not used: " + directory +
                " may be written by other users (mode 0777), who could replace kernels; remove it, "
                "or 'chmod go-w " +
                directory + "'\n");
}

}  // namespace
}  // namespace srjit
