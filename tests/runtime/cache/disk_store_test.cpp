#include "runtime/cache/disk_store.h"

#include <sys/resource.h>
#include <sys/stat.h>

#include <atomic>
#include <csignal>
#include <thread>
#include <vector>

#include <gmock/gmock.h>

#include "ir/numbers/random.h"
#include "runtime/cache/sqlite_file.h"
#include "tests/runtime/cache/stores.h"

namespace srjit {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// Damages the file by SQL outside of the store.
void tamper(const Scratch& scratch, const char* sql) {
  SqliteFile file(fileIn(scratch), SqliteFile::Access::kWrite);
  file.execute(sql);
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
  EXPECT_EQ(store->totals()->images, 3u);
  EXPECT_DOUBLE_EQ(store->totals()->seconds, 0.75);
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
  EXPECT_EQ((*images)[0].bytes, store->totals()->bytes);
  EXPECT_TRUE((*images)[0].is_ptx);
  ASSERT_EQ((*images)[0].kernels.size(), 2u);
  EXPECT_EQ((*images)[0].kernels[1].spill_load_bytes, 12u);
  EXPECT_GE((*images)[0].used, before);
}

TEST(DiskStore, EvictsTheLeastRecentlyUsed) {
  const Scratch scratch;
  {
    auto store = openIn(scratch);
    for (int i = 0; i < 4; ++i) ASSERT_TRUE(put(*store, i, 10'000));
  }
  tamper(scratch, "UPDATE images SET used = 1000 + id");
  auto store = openIn(scratch, 42'000);
  ASSERT_TRUE(has(*store, 0, 10'000));  // which makes it the most recently used
  ASSERT_TRUE(put(*store, 4, 10'000));
  EXPECT_EQ(store->evictions(), 1u);
  EXPECT_TRUE(has(*store, 0, 10'000));
  EXPECT_FALSE(has(*store, 1, 10'000));
  EXPECT_TRUE(has(*store, 2, 10'000));
  EXPECT_LE(store->totals()->bytes, 42'000u);
  // An image above the bound evicts nothing.
  EXPECT_TRUE(put(*store, 5, 50'000));
  EXPECT_FALSE(has(*store, 5, 50'000));
  EXPECT_EQ(store->totals()->images, 4u);
}

TEST(DiskStore, RecordsUsesAtDestruction) {
  const Scratch scratch;
  {
    auto store = openIn(scratch);
    ASSERT_TRUE(put(*store, 1));
    ASSERT_TRUE(put(*store, 2));
  }
  tamper(scratch, "UPDATE images SET used = 1000");
  {
    EXPECT_TRUE(has(*openIn(scratch), 1));
  }
  const auto images = openIn(scratch)->list();
  EXPECT_EQ((*images)[0].key, keyNumber(1));
  EXPECT_GT((*images)[0].used, 1'000'000);
  EXPECT_EQ((*images)[1].used, 1);
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

TEST(DiskStore, DamagedImagesAreMissesAndAreReplaced) {
  for (const char* const damage :
       {"UPDATE codes SET code = zeroblob(1000)", "UPDATE codes SET kernels = '[]'", "UPDATE codes SET kernels = '{'",
        "UPDATE images SET is_ptx = 1 - is_ptx", "UPDATE images SET seconds = 9", "UPDATE images SET title = 'other'",
        "UPDATE images SET checksum = x'00'", "DELETE FROM codes", "UPDATE codes SET code = 'text'",
        "UPDATE codes SET code = 7"}) {
    SCOPED_TRACE(damage);
    const Scratch scratch;
    {
      ASSERT_TRUE(put(*openIn(scratch), 1));
    }
    tamper(scratch, damage);
    auto store = openIn(scratch);
    EXPECT_FALSE(has(*store, 1));
    EXPECT_EQ(store->damaged(), 1u);
    EXPECT_EQ(store->totals()->images, 0u);
    EXPECT_TRUE(put(*store, 1));
    EXPECT_TRUE(has(*store, 1));
  }
}

TEST(DiskStore, AnImageUnderAnotherKeyIsAMiss) {
  const Scratch scratch;
  {
    auto store = openIn(scratch);
    ASSERT_TRUE(put(*store, 1) && put(*store, 2));
  }
  tamper(scratch,
         "CREATE TEMP TABLE t AS SELECT digest FROM images WHERE id = 2; UPDATE images SET digest = x'00' WHERE id = 2;"
         "UPDATE images SET digest = (SELECT digest FROM t) WHERE id = 1");
  auto store = openIn(scratch);
  EXPECT_FALSE(has(*store, 2));
  EXPECT_EQ(store->damaged(), 1u);
}

TEST(DiskStore, FactsWithAWrongChecksumAreMisses) {
  const Scratch scratch;
  {
    ASSERT_TRUE(openIn(scratch)->writeFact("rate", "1").ok());
  }
  tamper(scratch, "UPDATE facts SET value = '2'");
  EXPECT_FALSE(openIn(scratch)->readFact("rate")->has_value());
}

/// Whether the header of `content` identifies the store: SQLite's magic and the application id of `whole`.
bool isKnown(const std::string& content, const std::string& whole) {
  return content.size() >= 72 && content.compare(0, 16, whole, 0, 16) == 0 && content.compare(68, 4, whole, 68, 4) == 0;
}

/// A file with one image, of whose header a byte is changed: the last one of a number of four bytes.
void writeWithHeaderByte(const Scratch& scratch, std::size_t at, char expected, char changed) {
  ASSERT_TRUE(put(*openIn(scratch), 1, 20'000));
  std::string content = contentOf(fileIn(scratch));
  ASSERT_EQ(content[at], expected);
  content[at] = changed;
  scratch.write(DiskStore::kFileName, content);
}

// SQLite reports it as an error of the statement, not as damage.
TEST(DiskStore, AFileOfAnUnknownSchemaFormatIsRecreated) {
  const Scratch scratch;
  writeWithHeaderByte(scratch, 47, 4, 9);
  const auto store = openIn(scratch);
  EXPECT_EQ(store->damaged(), 1U);
  EXPECT_TRUE(put(*store, 1, 20'000));
  EXPECT_TRUE(store->read(keyNumber(1)).value());
}

// SQLite takes such a file for UTF-8 at first, and reports an error when it reads the schema again.
TEST(DiskStore, AFileOfAnUnknownTextEncodingIsRecreated) {
  const Scratch scratch;
  writeWithHeaderByte(scratch, 59, 1, 0x6c);
  const auto store = openIn(scratch);
  EXPECT_TRUE(store->clear());
  const auto listed = store->list();
  ASSERT_TRUE(listed) << listed.error().message;
  EXPECT_TRUE(listed->empty());
  EXPECT_EQ(store->damaged(), 1U);
  EXPECT_TRUE(put(*store, 1, 20'000));
  EXPECT_TRUE(store->read(keyNumber(1)).value());
}

TEST(DiskStore, RandomDamageLeavesItUsable) {
  Random random(11);
  const Scratch good;
  {
    auto store = openIn(good);
    for (int i = 0; i < 12; ++i) ASSERT_TRUE(put(*store, i, 20'000));
    ASSERT_TRUE(store->writeFact("rate", "1").ok());
  }
  const std::string whole = contentOf(fileIn(good));
  for (int round = 0; round < 120; ++round) {
    SCOPED_TRACE(round);
    const Scratch scratch;
    std::string content = whole;
    if (round % 3 == 0) {
      content.resize(random.below(whole.size()));
    } else {
      // Damages page headers more often, since they have the structure.
      for (int i = 0; i < 1 + round % 5 * 40; ++i) {
        const std::size_t page = random.below(whole.size() / 32768) * 32768;
        content[page + random.below(i % 2 == 0 ? 120 : 32768)] ^= static_cast<char>(1 + random.below(255));
      }
    }
    scratch.write(DiskStore::kFileName, content);
    if (round % 4 == 0)
      scratch.write(std::string(DiskStore::kFileName) + "-wal", whole.substr(random.below(1000), 9999));
    if (!content.empty() && !isKnown(content, whole)) {
      EXPECT_FALSE(DiskStore::open(scratch.path(""), kStoreBudget).ok());
      EXPECT_EQ(contentOf(fileIn(scratch)), content);
      continue;
    }
    auto store = openIn(scratch);
    for (int i = 0; i < 12; ++i) {
      const auto read = store->read(keyNumber(i));
      ASSERT_TRUE(read.ok()) << read.error().message;
      if (*read) {
        ASSERT_TRUE(sameImage(**read, imageNumber(i, 20'000)));
      }
    }
    const auto fact = store->readFact("rate");
    if (fact && *fact) {
      EXPECT_EQ(**fact, "1");
    }
    ASSERT_TRUE(store->verify().ok());
    for (int i = 20; i < 24; ++i) {
      const Status written = store->write(keyNumber(i), imageNumber(i));
      ASSERT_TRUE(written.ok()) << written.error().message;
      ASSERT_TRUE(has(*store, i));
    }
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
  tamper(scratch, "UPDATE codes SET code = zeroblob(1000) WHERE id = 2");
  {
    auto store = openIn(scratch);
    const auto found = store->verify();
    EXPECT_EQ(found->images, 3u);
    EXPECT_FALSE(found->remade);
    EXPECT_THAT(found->bad, ElementsAre("image 2"));
    EXPECT_EQ(store->verify()->images, 2u);
  }
  // A missing index is damage that no query detects.
  tamper(scratch, "PRAGMA writable_schema = 1; DELETE FROM sqlite_schema WHERE name = 'by_use'");
  auto store = openIn(scratch);
  const auto found = store->verify();
  ASSERT_TRUE(found.ok()) << found.error().message;
  EXPECT_TRUE(found->remade);
  EXPECT_EQ(store->totals()->images, 0u);
  EXPECT_TRUE(put(*store, 1));
}

TEST(DiskStore, ClearShrinksTheFile) {
  const Scratch scratch;
  {
    auto store = openIn(scratch);
    for (int i = 0; i < 8; ++i) ASSERT_TRUE(put(*store, i, 200'000));
    ASSERT_TRUE(store->writeFact("rate", "1").ok());
    const std::uint64_t bytes = store->totals()->bytes;
    EXPECT_GT(bytes, 1'600'000u);
    EXPECT_EQ(*store->clear(), bytes);
    EXPECT_FALSE(has(*store, 1, 200'000));
    EXPECT_FALSE(store->readFact("rate")->has_value());
    EXPECT_TRUE(put(*store, 1));
  }
  EXPECT_LT(std::filesystem::file_size(fileIn(scratch)), 1'000'000u);
}

TEST(DiskStore, UnusableDirectoriesAreReported) {
  const Scratch scratch;
  const auto messageOf = [](const std::string& directory) {
    const auto store = DiskStore::open(directory, kStoreBudget);
    return store ? "opened" : store.error().message;
  };
  EXPECT_THAT(messageOf(scratch.write("file", "") + "/below"), HasSubstr("cannot use the cache directory"));
  EXPECT_THAT(messageOf("/proc/sr-jit"), HasSubstr("/proc/sr-jit: No such file or directory"));
  std::filesystem::create_directory(fileIn(scratch));
  EXPECT_THAT(messageOf(scratch.path("")), HasSubstr("kernels.sqlite is no regular file"));
}

/// Makes the file of a store read-only, alone or with its directory.
void protect(const Scratch& scratch, bool file_alone) {
  chmod(fileIn(scratch).c_str(), 0444);
  chmod(scratch.path("").c_str(), file_alone ? 0755 : 0555);
  if (!file_alone || geteuid() != 0) return;
  ASSERT_EQ(chown(scratch.path("").c_str(), kNobody, kNobody), 0);
}

/// Undoes protect(). Removes the log, since it belongs to user nobody and would not be trusted.
void unprotect(const Scratch& scratch) {
  for (const char* const part : {"-wal", "-shm"}) std::filesystem::remove(fileIn(scratch) + part);
  ASSERT_EQ(chown(scratch.path("").c_str(), geteuid(), getegid()), 0);
  chmod(scratch.path("").c_str(), 0700);
}

TEST(DiskStore, ReadOnlyFilesAreRead) {
  for (const bool file_alone : {true, false}) {
    SCOPED_TRACE(file_alone);
    const Scratch scratch;
    {
      ASSERT_TRUE(put(*openIn(scratch), 1));
    }
    protect(scratch, file_alone);
    EXPECT_EQ(ended(startChild([&] {
                if (!becomeNobody()) return 9;
                auto store = DiskStore::open(scratch.path(""), kStoreBudget);
                if (!store) return 1;
                if (!has(**store, 1)) return 2;
                const Status written = (*store)->write(keyNumber(2), imageNumber(2));
                if (written || written.error().message.find("SQLITE_READONLY") == std::string::npos) return 3;
                if ((*store)->verify()->images != 1 || (*store)->clear().ok()) return 4;
                return 0;
              })),
              0);
    unprotect(scratch);
    EXPECT_TRUE(has(*openIn(scratch), 1));
  }
}

TEST(DiskStore, DamageOfAReadOnlyFileIsAMissForEveryThread) {
  for (const bool file_alone : {true, false}) {
    SCOPED_TRACE(file_alone);
    const Scratch scratch;
    {
      auto store = openIn(scratch);
      ASSERT_TRUE(put(*store, 1) && put(*store, 2));
    }
    tamper(scratch, "UPDATE codes SET code = zeroblob(1000) WHERE id = 1");
    protect(scratch, file_alone);
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
                return (*store)->damaged() == 80 && (*store)->totals()->images == 2 ? 0 : 3;
              })),
              0);
    unprotect(scratch);
  }
}

TEST(DiskStore, AFullDiskKeepsExistingImages) {
  const Scratch scratch;
  {
    ASSERT_TRUE(put(*openIn(scratch), 1));
  }
  EXPECT_EQ(ended(startChild([&] {
              std::signal(SIGXFSZ, SIG_IGN);
              const rlimit limit{1 << 20, 1 << 20};
              setrlimit(RLIMIT_FSIZE, &limit);
              auto store = openIn(scratch);
              int failed = 0;
              for (int i = 2; i < 10; ++i) failed += put(*store, i, 400'000) ? 0 : 1;
              if (failed == 0) return 1;
              if (!has(*store, 1)) return 2;
              return 0;
            })),
            0);
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
              return DiskStore::open(scratch.path(""), kStoreBudget).ok() ? 1 : 0;
            })),
            0);
}

}  // namespace
}  // namespace srjit
