#include "tests/generators/scratch.h"

#include <gmock/gmock.h>

#include "tests/generators/environment.h"

namespace srjit {
namespace {

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
  const ScopedVariable temporary("TMPDIR", "/proc");
  try {
    const Scratch scratch;
    FAIL() << scratch.path("");
  } catch (const std::system_error& failure) {
    EXPECT_THAT(failure.what(), testing::HasSubstr("cannot make a temporary folder in /proc: "));
  }
}

}  // namespace
}  // namespace srjit
