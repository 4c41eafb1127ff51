// One directory of kernels in several processes.
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <csignal>
#include <vector>

#include <gtest/gtest.h>

#include "ir/numbers/random.h"
#include "tests/runtime/cache/stores.h"

namespace srjit {
namespace {

TEST(DiskStore, ManyProcessesShareOneDirectory) {
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
  auto store = openIn(scratch, 500'000);
  EXPECT_TRUE(put(*store, kImages, 40'000));  // a sweep
  EXPECT_LE(store->totals()->disk_bytes, 500'000u);
  EXPECT_GE(store->totals()->disk_images, 10u);
  EXPECT_TRUE(store->verify()->bad.empty());
}

TEST(DiskStore, TwoProcessesMayWriteOneKey) {
  const Scratch scratch;
  std::vector<pid_t> children;
  for (int p = 0; p < 2; ++p) {
    children.push_back(startChild([&] {
      for (int round = 0; round < 300; ++round) {
        auto store = openIn(scratch);
        if (!put(*store, 1, 30'000) || store->damaged() != 0) return 1;
        const auto read = store->read(keyNumber(1));
        if (!read || (*read && !sameImage(**read, imageNumber(1, 30'000)))) return 2;
        if (round % 2 == p) std::filesystem::remove(fileIn(scratch, 1));
      }
      return 0;
    }));
  }
  for (const pid_t child : children) EXPECT_EQ(ended(child), 0);
  for (const std::string& name : scratch.list()) EXPECT_EQ(name, imageFile(1)) << "no temporary file is left";
}

TEST(DiskStore, AKilledWriterLeavesAUsableDirectory) {
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
    EXPECT_TRUE(found->bad.empty());
    EXPECT_TRUE(put(*store, 1000, 300'000));
    EXPECT_TRUE(has(*store, 1000, 300'000));
  }
}

TEST(DiskStore, AnotherProcessMaySweep) {
  const Scratch scratch;
  int swept[2];
  ASSERT_EQ(pipe(swept), 0);
  const pid_t child = startChild([&] {
    const int folder = open(scratch.path("").c_str(), O_RDONLY | O_DIRECTORY);
    if (flock(folder, LOCK_EX) != 0 || write(swept[1], "x", 1) != 1) return 1;
    pause();
    return 0;
  });
  char byte;
  ASSERT_EQ(read(swept[0], &byte, 1), 1);
  auto store = openIn(scratch, 10'000);
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(put(*store, i)) << "nobody waits";
  EXPECT_EQ(store->totals()->disk_images, 20u);
  kill(child, SIGKILL);
  ended(child);
  EXPECT_TRUE(put(*store, 20));
  EXPECT_TRUE(has(*store, 20));
  EXPECT_LE(store->totals()->disk_bytes, 10'000u);
  close(swept[0]);
  close(swept[1]);
}

TEST(DiskStore, AForkedChildMayUseIt) {
  const Scratch scratch;
  auto store = openIn(scratch);
  ASSERT_TRUE(put(*store, 1));
  EXPECT_EQ(ended(startChild([&] {
              if (!has(*store, 1) || !put(*store, 2)) return 1;
              store.reset();
              return 0;
            })),
            0);
  EXPECT_TRUE(has(*store, 1) && has(*store, 2));
  EXPECT_TRUE(put(*store, 3));
}

}  // namespace
}  // namespace srjit
