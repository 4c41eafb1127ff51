// Files that the kernel store must not trust, change or create.
#include <fcntl.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <map>
#include <string>

#include <gmock/gmock.h>

#include "runtime/cache/disk_store.h"
#include "runtime/cache/kernels.h"
#include "runtime/cache/sqlite_file.h"
#include "tests/runtime/cache/images.h"

namespace srjit {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr std::uint64_t kTrustBudget = 1 << 30;
constexpr StoreAccess kAll[] = {StoreAccess::kUse, StoreAccess::kMend, StoreAccess::kLook};

/// A cache directory and its parent folder.
struct Places {
  Places() {
    for (const char* const name : {"cache", "other"}) mkdir(folder.path(name).c_str(), 0700);
  }
  std::string cache() const { return folder.path("cache"); }
  std::string file() const { return folder.path(std::string("cache/") + DiskStore::kFileName); }
  /// A store with image 1 in `name`.
  void fill(const std::string& name) const {
    const auto store = DiskStore::open(folder.path(name), kTrustBudget);
    ASSERT_TRUE(store.ok()) << store.error().message;
    ASSERT_TRUE((*store)->write(keyNumber(1), imageNumber(1)).ok());
  }
  const Scratch folder;
};

std::string faultOf(const std::string& directory, StoreAccess access) {
  const auto store = DiskStore::open(directory, kTrustBudget, access);
  return store ? "" : store.error().message;
}

/// All files of a directory with their bytes.
std::map<std::string, std::string> filesIn(const std::string& directory) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    files[entry.path().filename().string()] = contentOf(entry.path().string());
  }
  return files;
}

unsigned modeOf(const std::string& path) {
  struct stat facts{};
  return lstat(path.c_str(), &facts) == 0 ? facts.st_mode & 07777U : 0U;
}

/// Runs SQL on `path`, as another program would.
void execute(const std::string& path, const char* sql) {
  close(open(path.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
  SqliteFile(path, SqliteFile::Access::kWrite).execute(sql);
}

TEST(StoreTrust, LinksAreNotFollowed) {
  for (const bool symbolic : {true, false}) {
    for (const char* const content : {"a letter", "", "database", "store"}) {
      SCOPED_TRACE(content);
      const Places places;
      const std::string target = places.folder.path("other/") + DiskStore::kFileName;
      if (content == std::string("database")) {
        execute(target, "CREATE TABLE letters (text TEXT)");
      } else if (content == std::string("store")) {
        places.fill("other");
      } else {
        places.folder.write(std::string("other/") + DiskStore::kFileName, content);
      }
      const auto before = filesIn(places.folder.path("other"));
      if (symbolic) {
        std::filesystem::create_symlink(target, places.file());
      } else {
        std::filesystem::create_hard_link(target, places.file());
      }
      for (const StoreAccess access : kAll) {
        EXPECT_THAT(faultOf(places.cache(), access),
                    HasSubstr(DiskStore::kFileName +
                              std::string(symbolic ? " is a symbolic link" : " has 2 names (hard links)")));
      }
      EXPECT_EQ(filesIn(places.folder.path("other")), before);
      EXPECT_THAT(filesIn(places.cache()), testing::SizeIs(1));
    }
  }
}

TEST(StoreTrust, DanglingLinksCreateNothing) {
  const Places places;
  std::filesystem::create_symlink(places.folder.path("other/new"), places.file());
  for (const StoreAccess access : kAll) EXPECT_THAT(faultOf(places.cache(), access), HasSubstr("is a symbolic link"));
  EXPECT_THAT(filesIn(places.folder.path("other")), IsEmpty());
}

TEST(StoreTrust, ForeignFilesAreNotChanged) {
  for (const char* const sql :
       {"CREATE TABLE letters (text TEXT); INSERT INTO letters VALUES ('dear')",
        "PRAGMA journal_mode = WAL; CREATE TABLE letters (text TEXT)", "PRAGMA application_id = 5",
        "PRAGMA user_version = 3", "CREATE TABLE images (id INTEGER); PRAGMA user_version = 1"}) {
    SCOPED_TRACE(sql);
    const Places places;
    execute(places.file(), sql);
    const auto before = filesIn(places.cache());
    for (const StoreAccess access : kAll) {
      EXPECT_THAT(faultOf(places.cache(), access),
                  AllOf(HasSubstr(places.file() + " is not a kernel cache of sr-jit"), HasSubstr("another program"),
                        HasSubstr("delete it, or choose another directory")));
    }
    EXPECT_EQ(filesIn(places.cache()), before);
  }
  for (const std::string& content : {std::string("garbage"), std::string(1 << 20, 'g'), std::string(100, '\0')}) {
    const Places places;
    places.folder.write(std::string("cache/") + DiskStore::kFileName, content);
    for (const StoreAccess access : kAll) {
      EXPECT_THAT(faultOf(places.cache(), access),
                  AllOf(HasSubstr("is not a kernel cache of sr-jit"), HasSubstr("no SQLite database")));
    }
    EXPECT_THAT(filesIn(places.cache()), ElementsAre(testing::Pair(DiskStore::kFileName, content)));
  }
}

/// Expects that the store of `places` is recreated, with a count of `damaged`.
void expectMadeAnew(const Places& places, std::uint64_t damaged) {
  const auto store = DiskStore::open(places.cache(), kTrustBudget);
  ASSERT_TRUE(store.ok()) << store.error().message;
  EXPECT_EQ((*store)->totals()->images, 0u);
  EXPECT_EQ((*store)->damaged(), damaged);
  EXPECT_TRUE((*store)->write(keyNumber(1), imageNumber(1)).ok());
  EXPECT_TRUE((*store)->read(keyNumber(1))->has_value());
  EXPECT_TRUE((*store)->writeFact("rate", "1").ok());
}

TEST(StoreTrust, EmptyAndOwnFilesAreRecreated) {
  const Places places;
  const std::string name = std::string("cache/") + DiskStore::kFileName;
  places.folder.write(name, "");
  expectMadeAnew(places, 0);
  execute(places.file(), "PRAGMA user_version = 77");
  expectMadeAnew(places, 0);
  std::string content = contentOf(places.file());
  std::fill(content.begin() + 100, content.end(), 'g');
  places.folder.write(name, content);
  expectMadeAnew(places, 1);
  places.folder.write(name, content.substr(0, 100));
  expectMadeAnew(places, 1);
}

TEST(StoreTrust, OwnFilesWithMissingTablesAreRecreated) {
  for (const char* const damage :
       {"DROP TABLE images; DROP TABLE codes; DROP TABLE facts", "DROP TABLE facts", "DROP TABLE codes",
        "ALTER TABLE images RENAME COLUMN used TO touched", "DROP INDEX by_use", "DROP TRIGGER drop_code"}) {
    SCOPED_TRACE(damage);
    const Places places;
    places.fill("cache");
    execute(places.file(), damage);
    expectMadeAnew(places, 1);
  }
}

TEST(StoreTrust, ForeignLogsAreNotCheckpointed) {
  const Places places;
  EXPECT_EQ(ended(startChild([&] {
              close(open(places.file().c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
              SqliteFile file(places.file(), SqliteFile::Access::kWrite);
              file.execute("PRAGMA journal_mode = WAL; CREATE TABLE letters (text TEXT)");
              kill(getpid(), SIGKILL);
              return 0;
            })),
            128 + SIGKILL);
  auto before = filesIn(places.cache());
  ASSERT_EQ(before.size(), 3u);
  // Without its index the log cannot be read: the file alone looks empty.
  for (const bool with_index : {true, false}) {
    if (!with_index) std::filesystem::remove(places.file() + "-shm");
    before = filesIn(places.cache());
    for (const StoreAccess access : kAll) {
      EXPECT_THAT(faultOf(places.cache(), access), HasSubstr("is not a kernel cache of sr-jit")) << with_index;
    }
    EXPECT_EQ(filesIn(places.cache()), before) << with_index;
  }
}

// After "chmod go-w", the user's own directory may contain files that others created before.
TEST(StoreTrust, ForeignLogsAndJournalsAreNotRead) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to give files away";
  for (const std::string part : {"-wal", "-shm", "-journal"}) {
    const Places places;
    places.fill("cache");
    const std::string planted = places.file() + part;
    close(open(planted.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    ASSERT_EQ(chown(planted.c_str(), 65533, 65533), 0);
    for (const StoreAccess access : kAll) {
      EXPECT_THAT(faultOf(places.cache(), access), HasSubstr(planted + " belongs to user 65533")) << part;
    }
  }
}

TEST(StoreTrust, HeaderHasTheIdFromTheStart) {
  const Places places;
  EXPECT_EQ(ended(startChild([&] {
              const auto store = DiskStore::open(places.cache(), kTrustBudget);
              static_cast<void>((*store)->write(keyNumber(1), imageNumber(1)));
              kill(getpid(), SIGKILL);
              return 0;
            })),
            128 + SIGKILL);
  std::filesystem::remove(places.file() + "-wal");
  std::filesystem::remove(places.file() + "-shm");
  EXPECT_EQ(faultOf(places.cache(), StoreAccess::kUse), "");
}

TEST(StoreTrust, FilesWritableByOthersAreNotUsed) {
  for (const mode_t mode : {0777U, 01777U, 0770U, 0703U}) {
    const Places places;
    places.fill("cache");
    const auto before = filesIn(places.cache());
    chmod(places.cache().c_str(), mode);
    for (const StoreAccess access : kAll) {
      EXPECT_THAT(faultOf(places.cache(), access),
                  AllOf(HasSubstr(places.cache() + " may be written by other users (mode "),
                        HasSubstr((mode & S_ISVTX) != 0 ? "choose another directory"
                                                        : "remove it, or 'chmod go-w " + places.cache())));
    }
    EXPECT_EQ(filesIn(places.cache()), before);
  }
  for (const mode_t mode : {0666U, 0620U}) {
    const Places places;
    places.fill("cache");
    const auto before = filesIn(places.cache());
    chmod(places.file().c_str(), mode);
    for (const StoreAccess access : kAll) {
      EXPECT_THAT(faultOf(places.cache(), access), HasSubstr(places.file() + " may be written by other users (mode "));
    }
    EXPECT_EQ(filesIn(places.cache()), before);
  }
  const Places places;
  places.fill("cache");
  chmod(places.file().c_str(), 0644);  // the mode of files of earlier versions
  EXPECT_EQ(faultOf(places.cache(), StoreAccess::kUse), "");
}

TEST(StoreTrust, FilesOfOtherUsersAreNotUsed) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give files away";
  for (const bool file : {true, false}) {
    const Places places;
    places.fill("cache");
    const std::string place = file ? places.file() : places.cache();
    ASSERT_EQ(chown(place.c_str(), 1000, 0), 0);
    const auto before = filesIn(places.cache());
    for (const StoreAccess access : kAll) {
      EXPECT_THAT(faultOf(places.cache(), access), HasSubstr(place + " belongs to user 1000"));
    }
    EXPECT_EQ(filesIn(places.cache()), before);
  }
}

TEST(StoreTrust, RootsFilesAreReadByOthers) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can make files of root";
  const Places places;
  places.fill("cache");
  for (const std::string& place : {places.folder.path(""), places.cache()}) chmod(place.c_str(), 0755);
  chmod(places.file().c_str(), 0644);
  EXPECT_EQ(ended(startChild([&] {
              if (!becomeNobody()) return 9;
              const auto store = DiskStore::open(places.cache(), kTrustBudget);
              if (!store) return 1;
              const auto image = (*store)->read(keyNumber(1));
              return image && *image && sameImage(**image, imageNumber(1)) ? 0 : 2;
            })),
            0);
}

TEST(StoreTrust, ParentDirectoriesAreChecked) {
  const Places places;
  ASSERT_EQ(mkdir(places.folder.path("above").c_str(), 0700), 0);
  const std::string above = places.folder.path("above"), directory = above + "/a/cache";
  ASSERT_EQ(faultOf(directory, StoreAccess::kUse), "");
  for (const auto& [mode, is_trusted] :
       {std::pair(0777U, false), {01777U, true}, {0755U, true}, {0703U, false}, {01773U, true}}) {
    ASSERT_EQ(chmod(above.c_str(), mode), 0);
    const std::string fault = faultOf(directory, StoreAccess::kUse);
    EXPECT_EQ(fault.empty(), is_trusted) << fault;
    if (!is_trusted) {
      EXPECT_THAT(fault, HasSubstr(above + " may be written by other users (mode "));
    }
  }
  if (geteuid() != 0) return;
  ASSERT_EQ(chmod(above.c_str(), 0770), 0);
  ASSERT_EQ(chown(above.c_str(), 0, 1), 0);
  EXPECT_THAT(faultOf(directory, StoreAccess::kUse), HasSubstr(above + " may be written by other users (mode 0770)"));
  ASSERT_EQ(chown(above.c_str(), 1000, 0), 0);
  ASSERT_EQ(chmod(above.c_str(), 0755), 0);
  EXPECT_THAT(faultOf(directory, StoreAccess::kUse), HasSubstr(above + " belongs to user 1000"));
}

TEST(StoreTrust, LinkedDirectoriesAreCheckedAtTheirTarget) {
  const Places places;
  std::filesystem::create_directory_symlink(places.folder.path("other"), places.folder.path("link"));
  places.fill("link");
  EXPECT_THAT(filesIn(places.folder.path("other")), testing::Contains(testing::Key(DiskStore::kFileName)));
  chmod(places.folder.path("other").c_str(), 0777);
  EXPECT_THAT(faultOf(places.folder.path("link"), StoreAccess::kUse),
              HasSubstr(places.folder.path("other") + " may be written by other users"));
}

TEST(StoreTrust, CreatedFilesArePrivateWhateverTheUmask) {
  for (const mode_t mask : {0000U, 0002U, 0022U}) {
    const Places places;
    const mode_t before = umask(mask);
    const std::string directory = places.folder.path("a/b");
    const auto store = DiskStore::open(directory, kTrustBudget);
    EXPECT_TRUE(store.ok() && (*store)->write(keyNumber(1), imageNumber(1)).ok());
    const auto cache = KernelCache::open({.directory = directory});
    const auto lock = cache->lock("name", [] { return true; });
    umask(before);
    EXPECT_TRUE(lock && lock->holds());
    EXPECT_EQ(modeOf(places.folder.path("a")), 0700u);
    EXPECT_EQ(modeOf(directory), 0700u);
    std::size_t files = 0;
    for (const auto& entry : std::filesystem::directory_iterator(directory)) {
      EXPECT_EQ(modeOf(entry.path().string()), 0600u) << entry.path();
      ++files;
    }
    EXPECT_EQ(files, 4u) << "the database, its log and index, and the lock";
  }
}

TEST(StoreTrust, LookCreatesAndChangesNothing) {
  const Places places;
  const std::string missing = places.folder.path("missing");
  for (const StoreAccess access : {StoreAccess::kLook, StoreAccess::kMend}) {
    for (const std::string& directory : {missing, places.cache()}) {
      const auto store = DiskStore::open(directory, kTrustBudget, access);
      ASSERT_TRUE(store.ok()) << store.error().message;
      EXPECT_EQ((*store)->totals()->images, 0u);
      EXPECT_THAT(*(*store)->list(), IsEmpty());
      EXPECT_FALSE((*store)->readFact("rate")->has_value());
      EXPECT_EQ((*store)->verify()->images, 0u);
    }
    EXPECT_FALSE(std::filesystem::exists(missing));
    EXPECT_THAT(filesIn(places.cache()), IsEmpty());
  }
  for (const char* const content : {"", "PRAGMA page_size = 4096; VACUUM"}) {
    execute(places.file(), content);
    const auto before = filesIn(places.cache());
    for (const StoreAccess access : {StoreAccess::kLook, StoreAccess::kMend}) {
      const auto store = DiskStore::open(places.cache(), kTrustBudget, access);
      ASSERT_TRUE(store.ok()) << store.error().message;
      EXPECT_EQ((*store)->verify()->images, 0u);
    }
    EXPECT_EQ(filesIn(places.cache()), before);
  }
}

TEST(StoreTrust, ReadingUnderLookChangesNothing) {
  const Places places;
  places.fill("cache");
  const auto look = [&] { return DiskStore::open(places.cache(), kTrustBudget, StoreAccess::kLook).value(); };
  const auto before = filesIn(places.cache());
  {
    const auto store = look();
    EXPECT_EQ(store->totals()->images, 1u);
    EXPECT_EQ(store->verify()->images, 1u);
    EXPECT_FALSE(store->write(keyNumber(2), imageNumber(2)).ok());
    EXPECT_FALSE(store->writeFact("rate", "1").ok());
    EXPECT_FALSE(store->clear().ok());
  }
  EXPECT_EQ(filesIn(places.cache()), before);
  execute(places.file(), "PRAGMA user_version = 77");
  const auto other = filesIn(places.cache());
  EXPECT_EQ(look()->totals()->images, 0u) << "the store has another schema version";
  EXPECT_EQ(filesIn(places.cache()), other);
  execute(places.file(), "PRAGMA user_version = 2; DROP TABLE facts");
  const auto damaged = filesIn(places.cache());
  EXPECT_THAT(faultOf(places.cache(), StoreAccess::kLook), HasSubstr("kernels.sqlite is damaged"));
  EXPECT_EQ(filesIn(places.cache()), damaged);
}

TEST(StoreTrust, LookReadsTheLog) {
  for (const bool is_dead : {false, true}) {
    const Places places;
    int ready[2];
    ASSERT_EQ(pipe(ready), 0);
    const pid_t child = startChild([&] {
      const auto store = DiskStore::open(places.cache(), kTrustBudget);
      if (!store || !(*store)->write(keyNumber(1), imageNumber(1)).ok()) return 1;
      if (write(ready[1], "x", 1) != 1) return 2;
      pause();
      return 0;
    });
    char byte;
    ASSERT_EQ(read(ready[0], &byte, 1), 1);
    if (is_dead) {
      kill(child, SIGKILL);
      ended(child);
    }
    const auto before = filesIn(places.cache());
    ASSERT_EQ(before.size(), 3u);
    {
      const auto store = DiskStore::open(places.cache(), kTrustBudget, StoreAccess::kLook);
      ASSERT_TRUE(store.ok()) << store.error().message;
      EXPECT_EQ((*store)->totals()->images, 1u);
      EXPECT_EQ((*store)->verify()->images, 1u);
    }
    EXPECT_EQ(filesIn(places.cache()), before);
    if (!is_dead) {
      kill(child, SIGKILL);
      ended(child);
    }
    close(ready[0]);
    close(ready[1]);
  }
}

/// Counts the pauses of SQLite while it lives, and ends each at once.
class SqlitePauses {
 public:
  SqlitePauses() : sleep_(system_.xSleep) {
    count = 0;
    system_.xSleep = [](sqlite3_vfs*, int microseconds) {
      ++count;
      return microseconds;
    };
  }
  ~SqlitePauses() { system_.xSleep = sleep_; }
  SqlitePauses(const SqlitePauses&) = delete;
  SqlitePauses& operator=(const SqlitePauses&) = delete;

  inline static std::atomic<std::size_t> count = 0;

 private:
  sqlite3_vfs& system_ = *sqlite3_vfs_find(nullptr);
  int (*const sleep_)(sqlite3_vfs*, int);
};

// SQLite 3.40 would wait for ten seconds, in many pauses.
TEST(StoreTrust, LookDoesNotWaitForAnEmptyLog) {
  const Places places;
  EXPECT_EQ(ended(startChild([&] {
              const auto store = DiskStore::open(places.cache(), kTrustBudget);
              kill(getpid(), SIGKILL);
              return 0;
            })),
            128 + SIGKILL);
  std::filesystem::resize_file(places.file() + "-wal", 32);
  const SqlitePauses pauses;
  EXPECT_EQ(faultOf(places.cache(), StoreAccess::kLook), "");
  EXPECT_EQ(SqlitePauses::count, 0U);
}

TEST(StoreTrust, UntrustedCachesWorkInMemory) {
  const Places places;
  places.fill("cache");
  const auto before = filesIn(places.cache());
  chmod(places.cache().c_str(), 0777);
  const auto cache = KernelCache::open({.directory = places.cache()});
  EXPECT_EQ(cache->find(keyNumber(1)), nullptr) << "untrusted images are not read";
  EXPECT_TRUE(cache->get(keyNumber(2), [] { return Result<KernelImage>(imageNumber(2)); }).ok());
  EXPECT_NE(cache->find(keyNumber(2)), nullptr);
  cache->writeFact("rate", "5");
  EXPECT_EQ(cache->readFact("rate"), "5");
  EXPECT_FALSE(cache->lock("name", [] { return true; })->holds());
  EXPECT_FALSE(cache->clear().ok());
  EXPECT_THAT(cache->stats().disk_fault, HasSubstr(places.cache() + " may be written by other users (mode 0777)"));
  EXPECT_EQ(filesIn(places.cache()), before);
}

TEST(StoreTrust, ClearTouchesNoOtherFile) {
  const Places places;
  places.fill("cache");
  const auto in = [&](const std::string& name) { return places.folder.path("cache/" + name); };
  const std::string own = "0123456789abcdef.lock", linked = "fedcba9876543210.lock", hard = "aaaaaaaaaaaaaaaa.lock";
  places.folder.write("other/letter", "dear");
  std::map<std::string, std::string> others;
  for (const std::string name : {"Cargo.lock", "yarn.lock", ".lock", "0123456789abcde.lock", "0123456789abcdeg.lock",
                                 "0123456789ABCDEF.lock", "0123456789abcdef0.lock", "0123456789abcdef", "notes"}) {
    others[name] = "content of " + name;
    places.folder.write("cache/" + name, others[name]);
  }
  places.folder.write("cache/" + own, "xx");
  std::filesystem::create_symlink(places.folder.path("other/letter"), in(linked));
  std::filesystem::create_hard_link(places.folder.path("other/letter"), in(hard));
  ASSERT_EQ(mkfifo(in("bbbbbbbbbbbbbbbb.lock").c_str(), 0600), 0);
  const auto cache = KernelCache::open({.directory = places.cache(), .access = StoreAccess::kMend});
  ASSERT_TRUE(cache->clear().ok());
  EXPECT_EQ(contentOf(in(own)), "");
  EXPECT_EQ(contentOf(places.folder.path("other/letter")), "dear");
  for (const auto& [name, content] : others) EXPECT_EQ(contentOf(in(name)), content) << name;
  EXPECT_EQ(DiskStore::open(places.cache(), kTrustBudget).value()->totals()->images, 0u);
}

}  // namespace
}  // namespace srjit
