#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <boost/iostreams/copy.hpp>
#include <boost/iostreams/device/array.hpp>
#include <boost/iostreams/device/back_inserter.hpp>
#include <boost/iostreams/filter/gzip.hpp>
#include <boost/iostreams/filter/lzma.hpp>
#include <boost/iostreams/filtering_stream.hpp>
#include <csignal>

#include <fmt/format.h>

#include <gmock/gmock.h>

#include "tests/tools/process.h"
#include "tools/files/output.h"
#include "tools/files/read.h"

namespace srjit {
namespace {

namespace io = boost::iostreams;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

template <class Filter>
std::string packed(const std::string& text) {
  std::string result;
  io::filtering_ostream stream;
  stream.push(Filter());
  stream.push(io::back_inserter(result));
  io::copy(io::array_source(text.data(), text.size()), stream);
  return result;
}
std::string gzipped(const std::string& text) { return packed<io::gzip_compressor>(text); }
std::string xzipped(const std::string& text) { return packed<io::lzma_compressor>(text); }

std::string someText() {
  std::string text;
  for (int i = 0; i < 20000; ++i) text += std::to_string(i * 7919 % 10007) + '\n';
  return text;
}

TEST(ReadFile, PlainGzipAndXz) {
  const Scratch scratch;
  const std::string text = someText();
  EXPECT_EQ(*readFile(scratch.write("a", text)), text);
  EXPECT_EQ(*readFile(scratch.write("a.gz", gzipped(text))), text);
  EXPECT_EQ(*readFile(scratch.write("a.xz", xzipped(text))), text);
  EXPECT_EQ(*readFile(scratch.write("empty", "")), "");
  EXPECT_EQ(*readFile(scratch.write("empty.xz", xzipped(""))), "");
}

TEST(ReadFile, ConcatenatedArchivesAreOneText) {
  const Scratch scratch;
  EXPECT_EQ(*readFile(scratch.write("a.gz", gzipped("one\n") + gzipped("two\n"))), "one\ntwo\n");
  EXPECT_EQ(*readFile(scratch.write("a.xz", xzipped("one\n") + xzipped("two\n"))), "one\ntwo\n");
}

TEST(ReadFile, UnreadableFilesAreReported) {
  const Scratch scratch;
  const Result<std::string> missing = readFile(scratch.path("missing"));
  EXPECT_EQ(missing.error().code, Errc::kIo);
  EXPECT_EQ(missing.error().message, "cannot read " + scratch.path("missing") + ": No such file or directory");
  EXPECT_THAT(readFile(scratch.path("")).error().message, HasSubstr("Is a directory"));
}

TEST(ReadFile, DamagedArchivesAreErrors) {
  const Scratch scratch;
  const std::string text = someText();
  for (const std::string name : {"a.gz", "a.xz"}) {
    const std::string good = name == "a.gz" ? gzipped(text) : xzipped(text);
    for (const std::size_t size : {std::size_t{8}, good.size() / 2, good.size() - 1}) {
      const Result<std::string> cut = readFile(scratch.write(name, good.substr(0, size)));
      ASSERT_FALSE(cut.ok()) << name << " cut to " << size;
      EXPECT_EQ(cut.error().code, Errc::kIo);
      EXPECT_THAT(cut.error().message, StartsWith(scratch.path(name) + ": the "));
      EXPECT_THAT(cut.error().message, HasSubstr("archive is damaged or cut short"));
    }
    std::string flipped = good;
    flipped[good.size() / 2] ^= 0x55;
    EXPECT_FALSE(readFile(scratch.write(name, flipped)).ok()) << name;
    EXPECT_FALSE(readFile(scratch.write(name, good + "garbage!")).ok()) << name;
    EXPECT_THAT(readFile(scratch.write(name, text)).error().message, HasSubstr("archive"));
    EXPECT_THAT(readFile(scratch.write(name, "")).error().message, HasSubstr("not a"));
  }
}

TEST(ReadFile, ALimitSaysWhichSizeIsTooLarge) {
  const Scratch scratch;
  const std::string archive = gzipped(std::string(100'000, 'a'));
  ASSERT_LT(archive.size(), 1000U);
  const std::string path = scratch.write("a.gz", archive);
  const Result<std::string> packed_size = readFile(path, 5), unpacked_size = readFile(path, 1000);
  ASSERT_FALSE(packed_size.ok());
  EXPECT_EQ(packed_size.error().code, Errc::kLimit);
  EXPECT_THAT(packed_size.error().message, HasSubstr("a.gz: more than 5 bytes; a larger --max-bytes"));
  ASSERT_FALSE(unpacked_size.ok());
  EXPECT_THAT(unpacked_size.error().message, HasSubstr("a.gz: more than 1000 bytes when unpacked; a larger"));
}

void writeAll(OutputFile& out, std::size_t bytes) {
  const std::string block(4096, 'a');
  for (std::size_t done = 0; done < bytes; done += block.size()) out.write(block);
}

TEST(OutputFile, AppearsOnlyWhenPublished) {
  const Scratch scratch;
  Result<OutputFile> out = OutputFile::create(scratch.path("out"));
  ASSERT_TRUE(out.ok());
  writeAll(*out, 5 << 20);
  EXPECT_THAT(scratch.list(), IsEmpty());
  ASSERT_TRUE(out->publish().ok());
  EXPECT_THAT(scratch.list(), ElementsAre("out"));
  EXPECT_EQ(contentOf(scratch.path("out")), std::string(5 << 20, 'a'));
}

TEST(OutputFile, DroppedLeavesTheOldFile) {
  const Scratch scratch;
  scratch.write("out", "old");
  {
    Result<OutputFile> out = OutputFile::create(scratch.path("out"));
    writeAll(*out, 5 << 20);
  }
  EXPECT_THAT(scratch.list(), ElementsAre("out"));
  EXPECT_EQ(contentOf(scratch.path("out")), "old");
}

TEST(OutputFile, ReplacesAndKeepsPermissionsAndLinks) {
  const Scratch scratch;
  chmod(scratch.write("out", "old").c_str(), 0640);
  std::filesystem::create_symlink("out", scratch.path("link"));
  Result<OutputFile> out = OutputFile::create(scratch.path("link"));
  out->write("new");
  ASSERT_TRUE(out->publish().ok());
  EXPECT_EQ(contentOf(scratch.path("out")), "new");
  EXPECT_TRUE(std::filesystem::is_symlink(scratch.path("link")));
  EXPECT_EQ(std::filesystem::status(scratch.path("out")).permissions(), std::filesystem::perms(0640));
  EXPECT_THAT(scratch.list(), ElementsAre("link", "out"));
}

TEST(OutputFile, UnwritablePathsAreErrors) {
  const Scratch scratch;
  EXPECT_THAT(OutputFile::create(scratch.path("no/such/folder/out")).error().message,
              testing::EndsWith("out: No such file or directory"));
  EXPECT_THAT(OutputFile::create(scratch.path("")).error().message, HasSubstr("Is a directory"));
  EXPECT_THAT(OutputFile::create("").error().message, HasSubstr("No such file"));
  EXPECT_THAT(OutputFile::create("/proc/out").error().message, StartsWith("cannot write /proc/out: "));
  EXPECT_EQ(OutputFile::create("/proc/out").error().code, Errc::kIo);
}

TEST(OutputFile, FullDeviceIsAnError) {
  Result<OutputFile> out = OutputFile::create("/dev/full");
  ASSERT_TRUE(out.ok());
  out->write("a");
  const Status status = out->publish();
  EXPECT_EQ(status.error().code, Errc::kIo);
  EXPECT_EQ(status.error().message, "cannot write /dev/full: No space left on device");
}

TEST(OutputFile, FullDiskLeavesNothing) {
  const Scratch scratch;
  std::filesystem::create_directory(scratch.path("tiny"));
  if (mount("none", scratch.path("tiny").c_str(), "tmpfs", 0, "size=1m") != 0)
    GTEST_SKIP() << "mounting is not allowed here";
  const std::string path = scratch.path("tiny/out");
  Result<OutputFile> out = OutputFile::create(path);
  ASSERT_TRUE(out.ok());
  writeAll(*out, 3 << 20);
  const Status status = out->publish();
  EXPECT_THAT(status.error().message, HasSubstr("No space left on device"));
  {
    const OutputFile dropped = std::move(*out);
  }
  EXPECT_TRUE(std::filesystem::is_empty(scratch.path("tiny")));
  umount2(scratch.path("tiny").c_str(), MNT_DETACH);
}

TEST(OutputFile, SizeLimitLeavesTheOldFile) {
  const Scratch scratch;
  scratch.write("out", "old");
  const int status = inChild([&] {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{1 << 20, 1 << 20};
    setrlimit(RLIMIT_FSIZE, &limit);
    Result<OutputFile> out = OutputFile::create(scratch.path("out"));
    if (!out) return 2;
    writeAll(*out, 3 << 20);
    const Status published = out->publish();
    return !published && published.error().message.ends_with("File too large") ? 0 : 1;
  });
  EXPECT_EQ(status, 0);
  EXPECT_THAT(scratch.list(), ElementsAre("out"));
  EXPECT_EQ(contentOf(scratch.path("out")), "old");
}

TEST(OutputFile, KilledProcessLeavesNothing) {
  const Scratch scratch;
  const int file = open(scratch.path("").c_str(), O_TMPFILE | O_WRONLY, 0600);
  if (file < 0) GTEST_SKIP() << "this file system has no unnamed files";
  close(file);
  const int status = inChild([&] {
    Result<OutputFile> out = OutputFile::create(scratch.path("out"));
    writeAll(*out, 3 << 20);
    raise(SIGKILL);
    return 0;
  });
  EXPECT_EQ(status, 128 + SIGKILL);
  EXPECT_THAT(scratch.list(), IsEmpty());
}

std::string published(const std::string& path, std::string_view content) {
  Result<OutputFile> out = OutputFile::create(path);
  if (!out) return out.error().message;
  out->write(content);
  const Status status = out->publish();
  return status ? "" : status.error().message;
}

TEST(OutputFile, NamesMayBeAsLongAsTheFileSystemAllows) {
  const Scratch scratch;
  const std::string longest(255, 'n');
  EXPECT_EQ(published(scratch.path(longest), "one"), "");
  EXPECT_EQ(published(scratch.path(longest), "two"), "");
  EXPECT_EQ(contentOf(scratch.path(longest)), "two");
  EXPECT_THAT(scratch.list(), ElementsAre(longest));
  const Result<OutputFile> longer = OutputFile::create(scratch.path(longest + 'n'));
  ASSERT_FALSE(longer.ok()) << "before anything is computed";
  EXPECT_THAT(longer.error().message, testing::EndsWith("File name too long"));
}

constexpr uid_t kSomebody = 65534, kOwner = 65533;

/// Runs `body` as a user other than root; skips the test if that is not possible.
template <class Body>
void asSomebody(const Body& body) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root to become another user";
  EXPECT_EQ(inChild([&] {
              if (setgid(kSomebody) != 0 || setuid(kSomebody) != 0) return 2;
              return body() ? 0 : 1;
            }),
            0);
}

TEST(OutputFile, AForeignFileInAStickyDirectoryIsOverwritten) {
  const Scratch scratch;
  const std::string file = scratch.write("out", "a longer old content");
  chmod(scratch.path("").c_str(), 01777);
  chmod(file.c_str(), 0666);
  static_cast<void>(chown(file.c_str(), kOwner, kOwner));
  asSomebody([&] { return published(file, "new").empty(); });
  EXPECT_EQ(contentOf(file), "new");
  EXPECT_THAT(scratch.list(), ElementsAre("out"));
  struct stat facts{};
  stat(file.c_str(), &facts);
  EXPECT_EQ(facts.st_uid, kOwner);
}

TEST(OutputFile, AFileInADirectoryThatMayNotBeWrittenIsOverwritten) {
  const Scratch scratch;
  const std::string file = scratch.write("out", "old");
  chmod(scratch.path("").c_str(), 0755);
  chmod(file.c_str(), 0666);
  asSomebody([&] { return published(file, "new").empty() && !published(scratch.path("other"), "new").empty(); });
  EXPECT_EQ(contentOf(file), "new");
}

// As Linux with fs.protected_symlinks, whatever the setting on this machine.
TEST(OutputFile, LinksOfOthersInSharedDirectoriesAreNotFollowed) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to give a link away";
  const Scratch scratch;
  std::filesystem::create_directory(scratch.path("shared"));
  scratch.write("private", "old");
  const std::string link = scratch.path("shared/link");
  std::filesystem::create_symlink(scratch.path("private"), link);
  EXPECT_EQ(lchown(link.c_str(), kOwner, kOwner), 0);
  chmod(scratch.path("shared").c_str(), 01777);
  EXPECT_THAT(published(link, "new"), testing::EndsWith("Permission denied"));
  EXPECT_EQ(contentOf(scratch.path("private")), "old");
  chmod(scratch.path("shared").c_str(), 0755);
  EXPECT_EQ(published(link, "new"), "");
}

TEST(OutputFile, ReplacedFilesAreNotOverwritten) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to give a file away";
  const Scratch scratch;
  const std::string file = scratch.write("out", "old");
  EXPECT_EQ(chown(file.c_str(), kOwner, kOwner), 0);
  Result<OutputFile> out = OutputFile::create(file);
  ASSERT_TRUE(out.ok());
  out->write("new");
  std::filesystem::rename(scratch.write("other", "of another program"), file);
  const Status status = out->publish();
  ASSERT_FALSE(status.ok()) << "the results would be lost";
  EXPECT_EQ(contentOf(file), "of another program");
}

TEST(OutputFile, OwnDescriptorsAreNoOutputs) {
  const Scratch scratch;
  const int own = open(scratch.write("own", "old").c_str(), O_WRONLY | O_CLOEXEC);
  const int inherited = open(scratch.write("inherited", "").c_str(), O_WRONLY);
  EXPECT_THAT(published(fmt::format("/proc/self/fd/{}", own), "new"), testing::EndsWith("Bad file descriptor"));
  EXPECT_EQ(published(fmt::format("/proc/self/fd/{}", inherited), "new"), "");
  EXPECT_EQ(contentOf(scratch.path("own")), "old");
  EXPECT_EQ(contentOf(scratch.path("inherited")), "new");
  close(own);
  close(inherited);
}

TEST(OutputFile, PathsMayBeAsLongAsTheSystemAllows) {
  const Scratch scratch;
  std::string folder = scratch.path("");
  while (folder.size() + 101 < 4080) folder += std::string(99, 'd') + '/';
  folder += std::string(4084 - folder.size(), 'd') + '/';
  std::filesystem::create_directories(folder);
  EXPECT_EQ(published(folder + "out", "one"), "");
  EXPECT_EQ(published(folder + "out", "two"), "");
  EXPECT_EQ(contentOf(folder + "out"), "two");
}

TEST(OutputFile, AMountPointIsOverwritten) {
  const Scratch scratch;
  const std::string real = scratch.write("real", "old"), mounted = scratch.write("mounted", "");
  if (mount(real.c_str(), mounted.c_str(), nullptr, MS_BIND, nullptr) != 0)
    GTEST_SKIP() << "mounting is not allowed here";
  EXPECT_EQ(published(mounted, "new"), "");
  EXPECT_EQ(contentOf(real), "new");
  umount2(mounted.c_str(), MNT_DETACH);
}

/// Hides /proc from this process; false if that is not allowed.
bool hideProc() {
  if (unshare(CLONE_NEWNS) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return false;
  return mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
         mount("none", "/proc", "tmpfs", 0, nullptr) == 0;
}

constexpr int kNotAllowed = 77;

TEST(OutputFile, NeedsNoProc) {
  const Scratch scratch;
  scratch.write("old", "old");
  const int status = inChild([&] {
    if (!hideProc()) return kNotAllowed;
    return published(scratch.path("new"), "new").empty() && published(scratch.path("old"), "new").empty() ? 0 : 1;
  });
  if (status == kNotAllowed) GTEST_SKIP() << "mounting is not allowed here";
  EXPECT_EQ(status, 0);
  EXPECT_EQ(contentOf(scratch.path("new")), "new");
  EXPECT_EQ(contentOf(scratch.path("old")), "new");
  EXPECT_THAT(scratch.list(), ElementsAre("new", "old"));
}

TEST(OutputFile, SignalsRemoveTemporaryFiles) {
  const Scratch scratch;
  const int status = inChild([&] {
    if (!hideProc()) return kNotAllowed;
    Result<OutputFile> out = OutputFile::create(scratch.path("out"));
    writeAll(*out, 3 << 20);
    if (scratch.list().size() != 1) return 1;
    raise(SIGTERM);
    return 2;
  });
  if (status == kNotAllowed) GTEST_SKIP() << "mounting is not allowed here";
  EXPECT_EQ(status, 128 + SIGTERM);
  EXPECT_THAT(scratch.list(), IsEmpty());
}

TEST(OutputFile, IgnoredSignalsStayIgnored) {
  const Scratch scratch;
  EXPECT_EQ(inChild([&] {
              std::signal(SIGHUP, SIG_IGN);
              std::signal(SIGXFSZ, SIG_IGN);
              if (!published(scratch.path("out"), "new").empty()) return 1;
              raise(SIGHUP);
              raise(SIGXFSZ);
              return 0;
            }),
            0);
}

TEST(OutputFile, OtherHardLinksKeepTheOldContent) {
  const Scratch scratch;
  scratch.write("out", "old");
  std::filesystem::create_hard_link(scratch.path("out"), scratch.path("twin"));
  EXPECT_EQ(published(scratch.path("out"), "new"), "");
  EXPECT_EQ(contentOf(scratch.path("twin")), "old");
}

}  // namespace
}  // namespace srjit
