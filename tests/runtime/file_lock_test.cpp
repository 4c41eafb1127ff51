#include "runtime/file_lock.h"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <utility>

#include <gtest/gtest.h>

#include "tests/tools/scratch.h"

namespace srjit {
namespace {

using std::chrono::milliseconds;

TEST(FileLock, ExcludesOthersAsLongAsItLives) {
  const Scratch folder;
  std::optional<FileLock> first = FileLock::take(folder.path("lock"), milliseconds(0));
  ASSERT_TRUE(first && first->holds());
  EXPECT_FALSE(FileLock::take(folder.path("lock"), milliseconds(20)));
  FileLock moved = std::move(*first);
  first.reset();
  EXPECT_FALSE(FileLock::take(folder.path("lock"), milliseconds(0))) << "the lock has moved";
  moved = FileLock();
  const auto second = FileLock::take(folder.path("lock"), milliseconds(0));
  EXPECT_TRUE(second && second->holds());
}

TEST(FileLock, EndsWithItsProcess) {
  const Scratch folder;
  int locked[2];
  ASSERT_EQ(pipe(locked), 0);
  const pid_t child = fork();
  if (child == 0) {
    const auto lock = FileLock::take(folder.path("lock"), milliseconds(0));
    const char ready = lock && lock->holds() ? 1 : 0;
    if (write(locked[1], &ready, 1) != 1) _exit(1);
    pause();
    _exit(0);
  }
  char ready = 0;
  ASSERT_EQ(read(locked[0], &ready, 1), 1);
  EXPECT_EQ(ready, 1);
  EXPECT_FALSE(FileLock::take(folder.path("lock"), milliseconds(20)));
  ASSERT_EQ(kill(child, SIGKILL), 0);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_TRUE(FileLock::take(folder.path("lock"), milliseconds(0)));
  close(locked[0]);
  close(locked[1]);
}

TEST(FileLock, HoldsNothingWhereThereCanBeNoFile) {
  const Scratch folder;
  const auto lock = FileLock::take(folder.path("no such folder/lock"), milliseconds(0));
  ASSERT_TRUE(lock);
  EXPECT_FALSE(lock->holds());
}

}  // namespace
}  // namespace srjit
