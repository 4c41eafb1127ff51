#include "tests/generators/scratch.h"

#include <optional>

#include <gmock/gmock.h>

namespace srjit {
namespace {

/// Sets the directory of temporary files, until its end.
class TemporaryDirectory {
 public:
  explicit TemporaryDirectory(const char* name) {
    if (const char* const before = std::getenv(kName); before != nullptr) before_ = before;
    setenv(kName, name, 1);
  }
  ~TemporaryDirectory() {
    if (before_) {
      setenv(kName, before_->c_str(), 1);
    } else {
      unsetenv(kName);
    }
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

 private:
  static constexpr const char* kName = "TMPDIR";
  std::optional<std::string> before_;
};

TEST(ScratchFolder, IsEmptyAndIsRemoved) {
  std::string folder;
  {
    const Scratch scratch;
    folder = scratch.path("");
    EXPECT_TRUE(std::filesystem::is_empty(folder));
    scratch.write("file", "content");
    EXPECT_EQ(contentOf(scratch.path("file")), "content");
  }
  EXPECT_FALSE(std::filesystem::exists(folder));
}

// Nobody can make a folder in /proc.
TEST(ScratchFolder, ThatCannotBeMadeThrows) {
  const TemporaryDirectory proc("/proc");
  try {
    const Scratch scratch;
    FAIL() << scratch.path("");
  } catch (const std::system_error& failure) {
    EXPECT_THAT(failure.what(), testing::HasSubstr("cannot make a temporary folder in /proc: "));
  }
}

}  // namespace
}  // namespace srjit
