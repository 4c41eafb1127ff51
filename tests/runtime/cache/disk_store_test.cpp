#include "runtime/cache/disk_store.h"

#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <map>
#include <set>
#include <thread>
#include <vector>

#include <gmock/gmock.h>

#include "ir/numbers/random.h"
#include "tests/runtime/cache/stores.h"

namespace srjit {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr std::size_t kVersionAt = 12, kKeyAt = 32;  ///< in a file

double secondsOf(const std::vector<StoredImage>& images) {
  double seconds = 0;
  for (const StoredImage& image : images) seconds += image.seconds;
  return seconds;
}

TEST(DiskStore, KeepsImagesForTheNextProcess) {
  const Scratch scratch;
  EXPECT_EQ(ended(startChild([&] {
              auto store = openIn(scratch);
              return put(*store, 1) && put(*store, 2, 700'000) && put(*store, 3, 0) && has(*store, 1) ? 0 : 1;
            })),
            0);
  auto store = openIn(scratch);
  EXPECT_TRUE(has(*store, 1));
  EXPECT_TRUE(has(*store, 2, 700'000));
  EXPECT_TRUE(has(*store, 3, 0));
  const auto missing = store->read(keyNumber(4));
  ASSERT_TRUE(missing.ok());
  EXPECT_FALSE(missing->has_value());
  EXPECT_EQ(store->totals()->disk_images, 3u);
  EXPECT_DOUBLE_EQ(secondsOf(*store->list()), 0.75);
  EXPECT_EQ(store->damaged(), 0u);
}

TEST(DiskStore, ListsItsImages) {
  const Scratch scratch;
  auto store = openIn(scratch);
  const std::int64_t before = time(nullptr);
  ASSERT_TRUE(put(*store, 5));
  const auto images = store->list();
  ASSERT_TRUE(images.ok());
  ASSERT_EQ(images->size(), 1u);
  EXPECT_EQ((*images)[0].key, keyNumber(5));
  EXPECT_EQ((*images)[0].key.title, "image 5");
  EXPECT_GT((*images)[0].bytes, 1000u);
  EXPECT_EQ((*images)[0].bytes, store->totals()->disk_bytes);
  EXPECT_EQ((*images)[0].form, imageNumber(5).form);
  ASSERT_EQ((*images)[0].kernels.size(), 2u);
  EXPECT_EQ((*images)[0].kernels[1].spill_load_bytes, 12u);
  EXPECT_GE((*images)[0].used, before - 1);  // a file system's clock may be some milliseconds late
}

TEST(DiskStore, EvictsTheLeastRecentlyUsed) {
  const Scratch scratch;
  {
    auto store = openIn(scratch);
    for (int i = 0; i < 4; ++i) ASSERT_TRUE(put(*store, i, 10'000));
  }
  for (const std::uint64_t i : {0U, 1U, 2U, 3U}) setUsed(fileIn(scratch, i), 1000 + static_cast<std::int64_t>(i));
  auto store = openIn(scratch, 48'000);
  ASSERT_TRUE(has(*store, 0, 10'000));  // which makes it the most recently used
  ASSERT_TRUE(put(*store, 4, 10'000));
  EXPECT_EQ(store->evictions(), 1u);
  EXPECT_TRUE(has(*store, 0, 10'000));
  EXPECT_FALSE(has(*store, 1, 10'000));
  EXPECT_TRUE(has(*store, 2, 10'000));
  EXPECT_LE(store->totals()->disk_bytes, 42'000u) << "an eighth of the bound is free";
  // An image above the bound evicts nothing.
  EXPECT_TRUE(put(*store, 5, 50'000));
  EXPECT_FALSE(has(*store, 5, 50'000));
  EXPECT_EQ(store->totals()->disk_images, 4u);
}

TEST(DiskStore, RecordsUses) {
  const Scratch scratch;
  {
    auto store = openIn(scratch);
    ASSERT_TRUE(put(*store, 1) && put(*store, 2) && put(*store, 3));
  }
  const std::int64_t now = time(nullptr), recent = now - 300, future = now + 100'000;
  for (const auto& [number, used] : {std::pair(1U, std::int64_t{1}), {2U, std::int64_t{1}}, {3U, recent}}) {
    setUsed(fileIn(scratch, number), used);
  }
  {
    auto store = openIn(scratch);
    EXPECT_TRUE(has(*store, 1) && has(*store, 3));
  }
  std::map<std::string, std::int64_t> used;
  const auto usedOf = [&] {
    const auto images = openIn(scratch)->list().value();
    EXPECT_TRUE(std::ranges::is_sorted(images, std::ranges::greater(), &StoredImage::used));
    for (const StoredImage& image : images) used[image.key.title] = image.used;
  };
  usedOf();
  EXPECT_GE(used["image 1"], now - 1);
  EXPECT_EQ(used["image 2"], 1);
  EXPECT_EQ(used["image 3"], recent) << "recorded every ten minutes";
  setUsed(fileIn(scratch, 2), future);
  EXPECT_TRUE(has(*openIn(scratch), 2));
  usedOf();
  EXPECT_LT(used["image 2"], future) << "the clock was set back";
}

TEST(DiskStore, FactsAreKeptAndReplaced) {
  const Scratch scratch;
  {
    auto store = openIn(scratch, 100);
    ASSERT_TRUE(store->writeFact("rate", "1").ok());
    ASSERT_TRUE(store->writeFact("rate", "2").ok());
    ASSERT_TRUE(store->writeFact("", "empty").ok());
    EXPECT_FALSE(store->readFact("other")->has_value());
  }
  auto store = openIn(scratch);
  EXPECT_EQ(store->readFact("rate")->value(), "2");
  EXPECT_EQ(store->readFact("")->value(), "empty");
}

/// Expects that image 1, whose file was changed, is a miss that counts `damaged` times, and can be written again.
void expectMissAndRepair(const Scratch& scratch, std::uint64_t damaged) {
  auto store = openIn(scratch);
  const auto read = store->read(keyNumber(1));
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_FALSE(read->has_value());
  EXPECT_EQ(store->damaged(), damaged);
  EXPECT_EQ(store->totals()->disk_images, damaged == 0 ? 1u : 0u);
  EXPECT_TRUE(put(*store, 1));
  EXPECT_TRUE(has(*store, 1));
}

// Every byte of header and text, and some of the code.
TEST(DiskStore, DamagedBytesAreMisses) {
  const Scratch scratch;
  ASSERT_TRUE(put(*openIn(scratch), 1));
  const std::string file = fileIn(scratch, 1), sound = contentOf(file);
  for (std::size_t at = kVersionAt; at < sound.size(); at += at < 300 ? 1 : 13) {
    SCOPED_TRACE(at);
    flipByte(file, static_cast<std::ptrdiff_t>(at));
    expectMissAndRepair(scratch, at < kVersionAt + 4 ? 0 : 1);
    if (testing::Test::HasFailure()) break;
  }
  EXPECT_EQ(contentOf(file), sound);
}

TEST(DiskStore, EveryOtherLengthIsAMiss) {
  const Scratch scratch;
  ASSERT_TRUE(put(*openIn(scratch), 1));
  const std::string file = fileIn(scratch, 1), sound = contentOf(file);
  for (std::size_t size = 0; size < sound.size(); size += size < 200 ? 1 : 97) {
    SCOPED_TRACE(size);
    std::filesystem::resize_file(file, size);
    expectMissAndRepair(scratch, 1);
  }
  scratch.write(imageFile(1), sound + '\0');
  expectMissAndRepair(scratch, 1);
  scratch.write(imageFile(1), std::string(sound.size(), '\0'));  // as a power failure may leave it
  expectMissAndRepair(scratch, 1);
}

TEST(DiskStore, AnImageUnderAnotherKeyIsAMiss) {
  const Scratch scratch;
  ASSERT_TRUE(put(*openIn(scratch), 1) && put(*openIn(scratch), 2));
  std::filesystem::rename(fileIn(scratch, 2), fileIn(scratch, 1));
  expectMissAndRepair(scratch, 1);
  ASSERT_TRUE(openIn(scratch)->writeFact("rate", "1").ok());
  std::filesystem::rename(scratch.path(factFile("rate")), scratch.path(factFile("other")));
  auto store = openIn(scratch);
  EXPECT_FALSE(store->readFact("other")->has_value());
  EXPECT_EQ(store->damaged(), 1u);
}

TEST(DiskStore, ImagesOfOtherVersionsAreMissesAndNotListed) {
  const Scratch scratch;
  ASSERT_TRUE(put(*openIn(scratch), 1));
  flipByte(fileIn(scratch, 1), kVersionAt);
  const auto store = openIn(scratch);
  EXPECT_THAT(*store->list(), IsEmpty());
  EXPECT_EQ(store->verify()->images, 0u);
  EXPECT_TRUE(store->verify()->bad.empty());
  expectMissAndRepair(scratch, 0);
}

TEST(DiskStore, FactsWithAWrongChecksumAreMisses) {
  const Scratch scratch;
  ASSERT_TRUE(openIn(scratch)->writeFact("rate", "1").ok());
  flipByte(scratch.path(factFile("rate")));
  const auto store = openIn(scratch);
  EXPECT_FALSE(store->readFact("rate")->has_value());
  EXPECT_EQ(store->damaged(), 1u);
  EXPECT_TRUE(store->writeFact("rate", "2").ok());
  EXPECT_EQ(store->readFact("rate")->value(), "2");
}

/// Changes a sound file: its length, or up to 161 bytes, more often of the header.
std::string damaged(std::string content, Random& random, int round) {
  if (round % 3 == 0) return content.substr(0, random.below(content.size()));
  for (int i = 0; i < 1 + round % 5 * 40; ++i) {
    content[random.below(i % 2 == 0 ? std::min<std::size_t>(120, content.size()) : content.size())] ^=
        static_cast<char>(1 + random.below(255));
  }
  return content;
}

TEST(DiskStore, RandomDamageLeavesItUsable) {
  Random random(11);
  const Scratch good;
  {
    auto store = openIn(good);
    for (int i = 0; i < 4; ++i) ASSERT_TRUE(put(*store, i, 20'000));
    ASSERT_TRUE(store->writeFact("rate", "1").ok());
  }
  const std::string magic = contentOf(fileIn(good, 0)).substr(0, kVersionAt);
  for (int round = 0; round < 120; ++round) {
    SCOPED_TRACE(round);
    const Scratch scratch;
    std::set<std::string> foreign;
    for (const std::string& name : good.list()) {
      const std::string content = damaged(contentOf(good.path(name)), random, round);
      if (!content.starts_with(magic.substr(0, content.size()))) foreign.insert(name);
      scratch.write(name, content);
    }
    auto store = openIn(scratch);
    for (std::uint64_t i = 0; i < 4; ++i) {
      const auto read = store->read(keyNumber(i));
      ASSERT_EQ(read.ok(), !foreign.contains(imageFile(i)));
      ASSERT_TRUE(!read || !*read || sameImage(**read, imageNumber(i, 20'000)));
    }
    const auto fact = store->readFact("rate");
    EXPECT_TRUE(!fact || !*fact || **fact == "1");
    for (std::uint64_t i = 20; i < 24; ++i) {
      const Status written = store->write(keyNumber(i), imageNumber(i));
      ASSERT_TRUE(written.ok()) << written.error().message;
      ASSERT_TRUE(has(*store, i));
    }
    foreign.erase(factFile("rate"));
    EXPECT_EQ(store->verify().ok(), foreign.empty());
  }
}

TEST(DiskStore, VerifyRemovesDamagedImages) {
  const Scratch scratch;
  {
    auto store = openIn(scratch);
    for (int i = 1; i <= 3; ++i) ASSERT_TRUE(put(*store, i));
    const auto found = store->verify();
    EXPECT_EQ(found->images, 3u);
    EXPECT_TRUE(found->bad.empty());
  }
  flipByte(fileIn(scratch, 2));
  auto store = openIn(scratch);
  const auto found = store->verify();
  EXPECT_EQ(found->images, 3u);
  EXPECT_THAT(found->bad, ElementsAre("image 2"));
  EXPECT_EQ(store->verify()->images, 2u);
  EXPECT_FALSE(std::filesystem::exists(fileIn(scratch, 2)));
}

TEST(DiskStore, ClearRemovesAllFiles) {
  const Scratch scratch;
  auto store = openIn(scratch);
  for (int i = 0; i < 8; ++i) ASSERT_TRUE(put(*store, i, 200'000));
  ASSERT_TRUE(store->writeFact("rate", "1").ok());
  const std::uint64_t bytes = store->totals()->disk_bytes;
  EXPECT_GT(bytes, 1'600'000u);
  EXPECT_EQ(*store->clear(), bytes);
  EXPECT_THAT(scratch.list(), IsEmpty());
  EXPECT_FALSE(has(*store, 1, 200'000));
  EXPECT_FALSE(store->readFact("rate")->has_value());
  EXPECT_TRUE(put(*store, 1));
}

TEST(DiskStore, StaleTemporaryFilesAreSwept) {
  for (const bool clears : {false, true}) {
    const Scratch scratch;
    const std::string stale = scratch.write(imageFile(1) + ".12-34.part", "half"),
                      early = scratch.write(factFile("rate") + ".12-34.part", "half"),
                      live = scratch.write(imageFile(2) + ".12-35.part", "half"),
                      other = scratch.write("letter.part", "dear");
    for (const std::string& file : {stale, other}) setUsed(file, time(nullptr) - 4000);
    setUsed(early, time(nullptr) + 4000);  // the clock was set back
    auto store = openIn(scratch);
    EXPECT_EQ(store->totals()->disk_images, 0u);
    EXPECT_TRUE(clears ? store->clear().ok() : put(*store, 3));
    EXPECT_FALSE(std::filesystem::exists(stale) || std::filesystem::exists(early));
    EXPECT_TRUE(std::filesystem::exists(live) && std::filesystem::exists(other));
  }
}

TEST(DiskStore, UnusableDirectoriesAreReported) {
  const Scratch scratch;
  const auto messageOf = [](const std::string& directory) {
    const auto store = DiskStore::open(directory, kStoreBudget);
    return store ? "opened" : store.error().message;
  };
  EXPECT_THAT(messageOf(scratch.write("file", "") + "/below"), HasSubstr("cannot use the cache directory"));
  EXPECT_THAT(messageOf(scratch.path("file")), HasSubstr("it is no directory"));
  EXPECT_THAT(messageOf("/proc/sr-jit"), HasSubstr("/proc/sr-jit: No such file or directory"));
}

TEST(DiskStore, AVanishedDirectoryIsAnErrorOfWriting) {
  const Scratch scratch;
  const auto store = DiskStore::open(scratch.path("cache"), kStoreBudget).value();
  ASSERT_TRUE(put(*store, 1));
  std::filesystem::remove_all(scratch.path("cache"));
  std::filesystem::create_directory(scratch.path("cache"));  // another one, which nobody has checked
  EXPECT_FALSE(has(*store, 1));
  EXPECT_EQ(store->totals()->disk_images, 0u);
  EXPECT_TRUE(store->clear().ok());
  const Status written = store->write(keyNumber(2), imageNumber(2));
  ASSERT_FALSE(written.ok());
  EXPECT_THAT(written.error().message, HasSubstr("No such file or directory"));
  EXPECT_THAT(scratch.list(), ElementsAre("cache"));
}

/// A directory that user nobody can read but not write; undone at the end.
class ReadOnlyDirectory {
 public:
  explicit ReadOnlyDirectory(const Scratch& scratch) : path_(scratch.path("")) {
    EXPECT_EQ(geteuid() == 0 ? chown(path_.c_str(), kNobody, kNobody) : 0, 0);
    EXPECT_EQ(chmod(path_.c_str(), 0555), 0);
    for (const auto& entry : std::filesystem::directory_iterator(path_)) chmod(entry.path().c_str(), 0444);
  }
  ReadOnlyDirectory(const ReadOnlyDirectory&) = delete;
  ReadOnlyDirectory& operator=(const ReadOnlyDirectory&) = delete;
  ~ReadOnlyDirectory() {
    EXPECT_EQ(chown(path_.c_str(), geteuid(), getegid()), 0);
    EXPECT_EQ(chmod(path_.c_str(), 0700), 0);
  }

 private:
  std::string path_;
};

TEST(DiskStore, ReadOnlyDirectoriesAreRead) {
  const Scratch scratch;
  ASSERT_TRUE(put(*openIn(scratch), 1));
  setUsed(fileIn(scratch, 1), 1000);
  {
    const ReadOnlyDirectory protection(scratch);
    EXPECT_EQ(ended(startChild([&] {
                if (!becomeNobody()) return 9;
                auto store = DiskStore::open(scratch.path(""), kStoreBudget);
                if (!store) return 1;
                if (!has(**store, 1)) return 2;
                const Status written = (*store)->write(keyNumber(2), imageNumber(2));
                if (written || written.error().message.find("Permission denied") == std::string::npos) return 3;
                if ((*store)->verify()->images != 1 || (*store)->clear().ok()) return 4;
                return 0;
              })),
              0);
  }
  EXPECT_TRUE(has(*openIn(scratch), 1));
}

TEST(DiskStore, DamageInAReadOnlyDirectoryIsAMissForEveryThread) {
  const Scratch scratch;
  {
    auto store = openIn(scratch);
    ASSERT_TRUE(put(*store, 1) && put(*store, 2));
  }
  flipByte(fileIn(scratch, 1));
  const ReadOnlyDirectory protection(scratch);
  EXPECT_EQ(ended(startChild([&] {
              if (!becomeNobody()) return 9;
              auto store = DiskStore::open(scratch.path(""), kStoreBudget);
              if (!store) return 1;
              std::atomic<int> wrong = 0;
              std::vector<std::thread> threads;
              for (int t = 0; t < 4; ++t) {
                threads.emplace_back([&] {
                  for (int i = 0; i < 20; ++i) {
                    const auto damaged = (*store)->read(keyNumber(1));
                    if (!damaged || *damaged || !has(**store, 2) || put(**store, 3)) ++wrong;
                  }
                });
              }
              for (std::thread& thread : threads) thread.join();
              if (wrong != 0) return 2;
              return (*store)->damaged() == 80 && (*store)->totals()->disk_images == 2 ? 0 : 3;
            })),
            0);
}

TEST(DiskStore, AFullDiskKeepsExistingImages) {
  const Scratch scratch;
  ASSERT_TRUE(put(*openIn(scratch), 1));
  EXPECT_EQ(ended(startChild([&] {
              std::signal(SIGXFSZ, SIG_IGN);
              const rlimit limit{300'000, 300'000};
              setrlimit(RLIMIT_FSIZE, &limit);
              auto store = openIn(scratch);
              for (int i = 2; i < 10; ++i) {
                if (put(*store, i, 400'000)) return 1;
              }
              return has(*store, 1) ? 0 : 2;
            })),
            0);
  EXPECT_THAT(scratch.list(), ElementsAre(imageFile(1))) << "no part of a file is left";
  auto store = openIn(scratch);
  EXPECT_TRUE(has(*store, 1));
  EXPECT_TRUE(put(*store, 9, 400'000));
  EXPECT_TRUE(has(*store, 9, 400'000));
  EXPECT_EQ(store->damaged(), 0u);
}

TEST(DiskStore, NoSpaceForAnythingIsAnError) {
  const Scratch scratch;
  EXPECT_EQ(ended(startChild([&] {
              std::signal(SIGXFSZ, SIG_IGN);
              const rlimit limit{0, 0};
              setrlimit(RLIMIT_FSIZE, &limit);
              const auto store = openIn(scratch);
              return put(*store, 1) || store->writeFact("rate", "1").ok() ? 1 : 0;
            })),
            0);
  EXPECT_THAT(scratch.list(), IsEmpty());
}

}  // namespace
}  // namespace srjit
