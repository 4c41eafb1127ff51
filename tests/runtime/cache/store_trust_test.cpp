// Files that the kernel store must not trust, change or create.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <map>
#include <string>

#include <gmock/gmock.h>

#include "runtime/cache/disk_store.h"
#include "runtime/cache/kernels.h"
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
  std::string file() const { return folder.path("cache/" + imageFile(1)); }
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

/// Tries all operations of a store in which the file of image 1 must be neither used nor changed: those that meet it
/// have an error of this text.
void expectRefused(const Places& places, const std::string& text, bool is_foreign = false) {
  for (const StoreAccess access : kAll) {
    const auto opened = DiskStore::open(places.cache(), kTrustBudget, access);
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    DiskStore& store = **opened;
    const auto expectError = [&](const auto& result) {
      ASSERT_FALSE(result.ok());
      EXPECT_TRUE(access != StoreAccess::kUse || result.error().message.find(text) != std::string::npos)
          << result.error().message;
    };
    expectError(store.read(keyNumber(1)));
    expectError(store.write(keyNumber(1), imageNumber(1)));
    expectError(store.list());
    expectError(store.verify());
    expectError(store.clear());
    if (!is_foreign) {  // whose content nobody reads in these
      expectError(store.totals());
      expectError(store.write(keyNumber(2), imageNumber(2)));
    }
    EXPECT_EQ(store.damaged(), 0U);
  }
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

TEST(StoreTrust, LinksAreNotFollowed) {
  for (const bool symbolic : {true, false}) {
    for (const char* const content : {"a letter", "", "store"}) {
      SCOPED_TRACE(content);
      const Places places;
      const std::string target = places.folder.path("other/" + imageFile(1));
      if (content == std::string("store")) {
        places.fill("other");
      } else {
        places.folder.write("other/" + imageFile(1), content);
      }
      const auto before = filesIn(places.folder.path("other"));
      if (symbolic) {
        std::filesystem::create_symlink(target, places.file());
      } else {
        std::filesystem::create_hard_link(target, places.file());
      }
      expectRefused(places, imageFile(1) + (symbolic ? " is a symbolic link" : " has 2 names (hard links)"));
      EXPECT_EQ(filesIn(places.folder.path("other")), before);
      EXPECT_THAT(filesIn(places.cache()), testing::SizeIs(1));
    }
  }
}

TEST(StoreTrust, DanglingLinksCreateNothing) {
  const Places places;
  std::filesystem::create_symlink(places.folder.path("other/new"), places.file());
  expectRefused(places, "is a symbolic link");
  EXPECT_THAT(filesIn(places.folder.path("other")), IsEmpty());
}

TEST(StoreTrust, LinksAndPipesOfFactsAreNotUsed) {
  const Places places;
  const std::string fact = places.folder.path("cache/" + factFile("rate"));
  const std::string letter = places.folder.write("other/letter", "dear");
  for (const bool pipe : {true, false}) {
    std::filesystem::remove(fact);
    if (pipe) {
      ASSERT_EQ(mkfifo(fact.c_str(), 0600), 0);
    } else {
      std::filesystem::create_symlink(letter, fact);
    }
    const auto store = DiskStore::open(places.cache(), kTrustBudget).value();
    const char* const text = pipe ? "is no regular file" : "is a symbolic link";
    EXPECT_THAT(store->readFact("rate").error().message, HasSubstr(text));
    EXPECT_THAT(store->writeFact("rate", "1").error().message, HasSubstr(text));
    EXPECT_THAT(store->clear().error().message, HasSubstr(text));
  }
  EXPECT_EQ(contentOf(letter), "dear");
}

TEST(StoreTrust, PipesFoldersAndSocketsAreNotUsed) {
  for (const mode_t kind : {mode_t{S_IFIFO}, mode_t{S_IFDIR}, mode_t{S_IFSOCK}}) {
    const Places places;
    ASSERT_EQ(kind == S_IFDIR ? mkdir(places.file().c_str(), 0700) : mknod(places.file().c_str(), kind | 0600, 0), 0);
    expectRefused(places, imageFile(1) + " is no regular file; remove it");
    EXPECT_TRUE(std::filesystem::exists(places.file()));
    EXPECT_EQ(places.folder.list(), (std::vector<std::string>{"cache", "other"}));
  }
}

TEST(StoreTrust, ForeignFilesAreNotChanged) {
  for (const std::string& content :
       {std::string("garbage"), std::string(1 << 20, 'g'), std::string("SQLite format 3\0", 16),
        std::string("sr-jit imagf") + std::string(100, '\0'), std::string("sx")}) {
    const Places places;
    places.folder.write("cache/" + imageFile(1), content);
    places.folder.write("cache/notes", "dear");
    const auto before = filesIn(places.cache());
    expectRefused(
        places, places.file() + " is not a kernel image of sr-jit, so it is neither used nor changed; delete it", true);
    const auto after = filesIn(places.cache());
    for (const auto& [name, bytes] : before) EXPECT_EQ(after.at(name), bytes) << name;
  }
}

// After "chmod go-w", the user's own directory may contain files that others created before.
TEST(StoreTrust, TemporaryFilesOfOthersAreNotRemoved) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to give files away";
  const Places places;
  const std::string planted = places.folder.write("cache/" + imageFile(2) + ".1-2.part", "planted");
  ASSERT_EQ(chown(planted.c_str(), 65533, 65533), 0);
  const auto store = DiskStore::open(places.cache(), kTrustBudget).value();
  for (const Status& status : {store->write(keyNumber(1), imageNumber(1)), Status(store->clear().error())}) {
    ASSERT_FALSE(status.ok());
    EXPECT_THAT(status.error().message, HasSubstr(planted + " belongs to user 65533"));
  }
  EXPECT_THAT(filesIn(places.cache()), testing::SizeIs(1));
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
    expectRefused(places, places.file() + " may be written by other users (mode ");
    EXPECT_EQ(filesIn(places.cache()), before);
  }
  const Places places;
  places.fill("cache");
  chmod(places.file().c_str(), 0644);
  EXPECT_TRUE(DiskStore::open(places.cache(), kTrustBudget).value()->read(keyNumber(1))->has_value());
}

TEST(StoreTrust, FilesOfOtherUsersAreNotUsed) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give files away";
  for (const bool file : {true, false}) {
    const Places places;
    places.fill("cache");
    const std::string place = file ? places.file() : places.cache();
    ASSERT_EQ(chown(place.c_str(), 1000, 0), 0);
    const auto before = filesIn(places.cache());
    if (file) {
      expectRefused(places, place + " belongs to user 1000");
    } else {
      for (const StoreAccess access : kAll) {
        EXPECT_THAT(faultOf(places.cache(), access), HasSubstr(place + " belongs to user 1000"));
      }
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
  EXPECT_THAT(filesIn(places.folder.path("other")), testing::Contains(testing::Key(imageFile(1))));
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
    EXPECT_TRUE((*store)->writeFact("rate", "1").ok());
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
    EXPECT_EQ(files, 3u) << "the image, the fact and the lock";
  }
}

TEST(StoreTrust, LookCreatesAndChangesNothing) {
  const Places places;
  const std::string missing = places.folder.path("missing");
  for (const StoreAccess access : {StoreAccess::kLook, StoreAccess::kMend}) {
    for (const std::string& directory : {missing, places.cache()}) {
      const auto store = DiskStore::open(directory, kTrustBudget, access);
      ASSERT_TRUE(store.ok()) << store.error().message;
      EXPECT_EQ((*store)->totals()->disk_images, 0u);
      EXPECT_THAT(*(*store)->list(), IsEmpty());
      EXPECT_FALSE((*store)->readFact("rate")->has_value());
      EXPECT_EQ((*store)->verify()->images, 0u);
    }
    EXPECT_FALSE(std::filesystem::exists(missing));
    EXPECT_THAT(filesIn(places.cache()), IsEmpty());
  }
}

TEST(StoreTrust, ReadingUnderLookChangesNothing) {
  const Places places;
  places.fill("cache");
  const auto look = [&] { return DiskStore::open(places.cache(), kTrustBudget, StoreAccess::kLook).value(); };
  const auto before = filesIn(places.cache());
  {
    const auto store = look();
    EXPECT_EQ(store->totals()->disk_images, 1u);
    EXPECT_EQ(store->verify()->images, 1u);
    EXPECT_FALSE(store->write(keyNumber(2), imageNumber(2)).ok());
    EXPECT_FALSE(store->writeFact("rate", "1").ok());
    EXPECT_FALSE(store->clear().ok());
  }
  EXPECT_EQ(filesIn(places.cache()), before);
  flipByte(places.file());
  const auto damaged = filesIn(places.cache());
  const auto store = look();
  EXPECT_FALSE(store->read(keyNumber(1))->has_value());
  EXPECT_THAT(store->verify()->bad, ElementsAre("image 1"));
  EXPECT_EQ(store->damaged(), 2U);
  EXPECT_EQ(filesIn(places.cache()), damaged);
}

TEST(StoreTrust, ReadingUnderLookIsNoUse) {
  const Places places;
  places.fill("cache");
  const timespec old[2] = {{.tv_sec = 1000, .tv_nsec = 0}, {.tv_sec = 1000, .tv_nsec = 0}};
  ASSERT_EQ(utimensat(AT_FDCWD, places.file().c_str(), old, 0), 0);
  for (const StoreAccess access : {StoreAccess::kLook, StoreAccess::kMend}) {
    const auto store = DiskStore::open(places.cache(), kTrustBudget, access).value();
    EXPECT_TRUE(store->read(keyNumber(1))->has_value());
    EXPECT_EQ(store->verify()->images, 1U);
    EXPECT_EQ(store->list()->front().used, 1000);
  }
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
                                 "0123456789ABCDEF.lock", "0123456789abcdef0.lock", "0123456789abcdef", "notes",
                                 "image.kernel", "0123456789abcdef.kernel", "a.fact", "a.part", "kernels.sqlite"}) {
    others[name] = "content of " + name;
    places.folder.write("cache/" + name, others[name]);
  }
  places.folder.write("cache/" + own, "xx");
  std::filesystem::create_symlink(places.folder.path("other/letter"), in(linked));
  std::filesystem::create_hard_link(places.folder.path("other/letter"), in(hard));
  ASSERT_EQ(mkfifo(in("bbbbbbbbbbbbbbbb.lock").c_str(), 0600), 0);
  for (const std::string& name : {imageFile(1) + ".bak", "0" + imageFile(1), imageFile(1) + ".part~"}) {
    others[name] = "content of " + name;
    places.folder.write("cache/" + name, others[name]);
  }
  const auto cache = KernelCache::open({.directory = places.cache(), .access = StoreAccess::kMend});
  ASSERT_TRUE(cache->clear().ok());
  EXPECT_EQ(contentOf(in(own)), "");
  EXPECT_EQ(contentOf(places.folder.path("other/letter")), "dear");
  for (const auto& [name, content] : others) EXPECT_EQ(contentOf(in(name)), content) << name;
  EXPECT_EQ(DiskStore::open(places.cache(), kTrustBudget).value()->totals()->disk_images, 0u);
}

}  // namespace
}  // namespace srjit
