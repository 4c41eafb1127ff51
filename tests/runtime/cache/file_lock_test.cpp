#include "runtime/cache/files.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <utility>

#include <gtest/gtest.h>

#include "tests/generators/scratch.h"

namespace srjit {
namespace {

bool atOnce() { return true; }

TEST(FileLock, IsExclusiveWhileHeld) {
  const Scratch folder;
  std::optional<FileLock> first = FileLock::take(folder.path("lock"), atOnce);
  ASSERT_TRUE(first && first->holds());
  EXPECT_FALSE(FileLock::take(folder.path("lock"), atOnce));
  FileLock moved = std::move(*first);
  first.reset();
  EXPECT_FALSE(FileLock::take(folder.path("lock"), atOnce)) << "the lock has moved";
  moved = FileLock();
  const auto second = FileLock::take(folder.path("lock"), atOnce);
  EXPECT_TRUE(second && second->holds());
}

TEST(FileLock, IsReleasedWhenItsProcessEnds) {
  const Scratch folder;
  int locked[2];
  ASSERT_EQ(pipe(locked), 0);
  const pid_t child = fork();
  if (child == 0) {
    const auto lock = FileLock::take(folder.path("lock"), atOnce);
    const char ready = lock && lock->holds() ? 1 : 0;
    if (write(locked[1], &ready, 1) != 1) _exit(1);
    pause();
    _exit(0);
  }
  char ready = 0;
  ASSERT_EQ(read(locked[0], &ready, 1), 1);
  EXPECT_EQ(ready, 1);
  EXPECT_FALSE(FileLock::take(folder.path("lock"), atOnce));
  ASSERT_EQ(kill(child, SIGKILL), 0);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_TRUE(FileLock::take(folder.path("lock"), atOnce));
  close(locked[0]);
  close(locked[1]);
}

TEST(FileLock, IsReleasedInForkedProcessesToo) {
  const Scratch folder;
  auto lock = FileLock::take(folder.path("lock"), atOnce);
  const pid_t child = fork();
  if (child == 0) {
    pause();
    _exit(0);
  }
  lock.reset();
  EXPECT_TRUE(FileLock::take(folder.path("lock"), atOnce));
  ASSERT_EQ(kill(child, SIGKILL), 0);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
}

TEST(FileLock, MarksSurviveItsRelease) {
  const Scratch folder;
  for (const bool marked : {false, true, true, false}) {
    auto lock = FileLock::take(folder.path("lock"), atOnce);
    ASSERT_TRUE(lock && lock->holds());
    lock->unmark();
    if (marked) lock->mark();
    lock.reset();
    lock = FileLock::take(folder.path("lock"), atOnce);
    EXPECT_EQ(lock->marks(), marked ? 1U : 0U);
  }
}

TEST(FileLock, CountsItsMarks) {
  const Scratch folder;
  for (unsigned marks = 0; marks < 3; ++marks) {
    auto lock = FileLock::take(folder.path("lock"), atOnce);
    EXPECT_EQ(lock->marks(), marks);
    lock->mark();
  }
}

TEST(FileLock, WaitsUntilGivesUpIsTrue) {
  const Scratch folder;
  const auto first = FileLock::take(folder.path("lock"), atOnce);
  int asked = 0;
  EXPECT_FALSE(FileLock::take(folder.path("lock"), [&] { return ++asked == 3; }));
  EXPECT_EQ(asked, 3);
}

TEST(FileLock, HoldsNothingForLinksAndPipes) {
  const Scratch folder;
  const std::string letter = folder.write("letter", "dear");
  std::filesystem::create_symlink(letter, folder.path("symbolic"));
  std::filesystem::create_symlink(folder.path("new"), folder.path("dangling"));
  std::filesystem::create_hard_link(letter, folder.path("hard"));
  ASSERT_EQ(mkfifo(folder.path("pipe").c_str(), 0600), 0);
  for (const char* const name : {"symbolic", "dangling", "hard", "pipe"}) {
    auto lock = FileLock::take(folder.path(name), atOnce);
    ASSERT_TRUE(lock) << name;
    EXPECT_FALSE(lock->holds()) << name;
    lock->unmark();
  }
  EXPECT_EQ(contentOf(letter), "dear");
  EXPECT_FALSE(std::filesystem::exists(folder.path("new")));
}

TEST(FileLock, FileIsPrivateWhateverTheUmask) {
  const Scratch folder;
  const mode_t mask = umask(0);
  const auto lock = FileLock::take(folder.path("lock"), atOnce);
  umask(mask);
  EXPECT_EQ(std::filesystem::status(folder.path("lock")).permissions(), std::filesystem::perms(0600));
}

TEST(FileLock, HoldsNothingWhereNoFileCanBeCreated) {
  const Scratch folder;
  const auto lock = FileLock::take(folder.path("no such folder/lock"), atOnce);
  ASSERT_TRUE(lock);
  EXPECT_FALSE(lock->holds());
  FileLock nothing;
  nothing.mark();
  EXPECT_EQ(nothing.marks(), 0U);
}

}  // namespace
}  // namespace srjit
