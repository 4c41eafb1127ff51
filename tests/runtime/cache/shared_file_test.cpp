// One file of kernels in several processes.
#include <unistd.h>

#include <csignal>
#include <vector>

#include <gmock/gmock.h>

#include "ir/numbers/random.h"
#include "tests/runtime/cache/stores.h"

namespace srjit {
namespace {

using testing::HasSubstr;

TEST(DiskStore, ManyProcessesShareOneFile) {
  const Scratch scratch;
  constexpr int kProcesses = 6, kImages = 24;
  std::vector<pid_t> children;
  for (int p = 0; p < kProcesses; ++p) {
    children.push_back(startChild([&] {
      Random random(static_cast<std::uint64_t>(p));
      for (int round = 0; round < 3; ++round) {
        auto store = DiskStore::open(scratch.path(""), 500'000);
        if (!store) return 1;
        for (int i = 0; i < 40; ++i) {
          const std::uint64_t number = random.below(kImages);
          const auto read = (*store)->read(keyNumber(number));
          if (!read) return 2;
          if (*read && !sameImage(**read, imageNumber(number, 40'000))) return 3;
          if (!*read && !put(**store, number, 40'000)) return 4;
        }
        if ((*store)->damaged() != 0) return 5;
      }
      return 0;
    }));
  }
  for (const pid_t child : children) EXPECT_EQ(ended(child), 0);
  auto store = openIn(scratch);
  EXPECT_EQ(store->totals()->images, 12u);
  const auto found = store->verify();
  EXPECT_FALSE(found->remade);
  EXPECT_TRUE(found->bad.empty());
}

TEST(DiskStore, AKilledWriterLeavesAUsableFile) {
  const Scratch scratch;
  for (int round = 0; round < 8; ++round) {
    int written[2];
    ASSERT_EQ(pipe(written), 0);
    const pid_t child = startChild([&] {
      auto store = openIn(scratch, 3'000'000);
      for (std::uint64_t i = 0;; ++i) {
        put(*store, i, 300'000);
        if (write(written[1], "x", 1) != 1) return 1;
      }
    });
    close(written[1]);
    for (int image = 0; image <= round; ++image) {
      char byte;
      ASSERT_EQ(read(written[0], &byte, 1), 1);
    }
    usleep(static_cast<useconds_t>(500 * round));  // varies the point of the next write; any point must do
    kill(child, SIGKILL);
    close(written[0]);
    EXPECT_EQ(ended(child), 128 + SIGKILL);
    auto store = openIn(scratch, 3'000'000);
    const auto found = store->verify();
    ASSERT_TRUE(found.ok()) << found.error().message;
    EXPECT_FALSE(found->remade);
    EXPECT_TRUE(found->bad.empty());
    EXPECT_TRUE(put(*store, 1000, 300'000));
    EXPECT_TRUE(has(*store, 1000, 300'000));
  }
}

TEST(DiskStore, AnotherProcessMayHoldTheLock) {
  const Scratch scratch;
  auto store = openIn(scratch);
  ASSERT_TRUE(put(*store, 1));
  int locked[2];
  ASSERT_EQ(pipe(locked), 0);
  // A separate program, since SQLite must not be used across fork().
  const pid_t child = startChild([&] {
    dup2(locked[1], STDOUT_FILENO);
    const std::string file = fileIn(scratch);
    execlp(
        "python3", "python3", "-c",
        "import sqlite3,sys,time\nc=sqlite3.connect(sys.argv[1],isolation_level=None)\nc.execute('begin immediate')\n"
        "print('x',flush=True)\ntime.sleep(60)",
        file.c_str(), nullptr);
    return 127;
  });
  char byte;
  ASSERT_EQ(read(locked[0], &byte, 1), 1);
  EXPECT_TRUE(has(*store, 1));  // readers do not wait
  const Status written = store->write(keyNumber(2), imageNumber(2));
  ASSERT_FALSE(written.ok());
  EXPECT_THAT(written.error().message, HasSubstr("(SQLITE_BUSY)"));
  kill(child, SIGKILL);
  ended(child);
  EXPECT_TRUE(put(*store, 2));
  EXPECT_TRUE(has(*store, 2));
  close(locked[0]);
  close(locked[1]);
}

TEST(DiskStore, IsNotUsedInAForkedChild) {
  const Scratch scratch;
  auto store = openIn(scratch);
  ASSERT_TRUE(put(*store, 1));
  EXPECT_EQ(ended(startChild([&] {
              const auto read = store->read(keyNumber(1));
              if (read || read.error().message.find("forked") == std::string::npos) return 1;
              store.reset();
              return 0;
            })),
            0);
  EXPECT_TRUE(has(*store, 1));
  EXPECT_TRUE(put(*store, 2));
}

}  // namespace
}  // namespace srjit
