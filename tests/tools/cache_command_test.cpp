#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "runtime/cache/kernels.h"
#include "tests/generators/environment.h"
#include "tests/runtime/cache/images.h"
#include "tests/tools/process.h"

namespace srjit {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::IsEmpty;

/// A directory with images 1 to 3, and the command on it.
class CacheCommand : public testing::Test {
 protected:
  void SetUp() override {
    const auto cache = KernelCache::open({.directory = scratch.path("cache")});
    for (std::uint64_t i = 1; i <= 3; ++i) {
      ASSERT_TRUE(cache->get(keyNumber(i), [=] { return Result<KernelImage>(imageNumber(i)); }).ok());
    }
    ASSERT_EQ(cache->stats().disk_fault, "");
  }

  Outcome run(const std::string& action, bool as_json = true) const {
    std::vector<std::string> words = {"cache", action, "--cache-dir", scratch.path("cache")};
    if (as_json) words.emplace_back("--json");
    return runCommand(words, "/");
  }

  /// The output of `sr-jit doctor` for this cache.
  std::string doctor() const {
    const ScopedVariable directory("SRJIT_CACHE_DIR", scratch.path("cache"));
    return runCommand({"doctor"}, "/").out;
  }

  std::string file() const { return scratch.path("cache/" + imageFile(2)); }

  /// Names, times of the last change and contents of the files.
  std::string state() const { return runShell("ls -la --full-time && cat *", scratch.path("cache")).out; }

  const Scratch scratch;
};

TEST_F(CacheCommand, StatsCountsTheImages) {
  const json stats = json::parse(run("stats").out);
  EXPECT_EQ(stats["images"], 3);
  EXPECT_GT(stats["bytes"], 3000);
  EXPECT_EQ(stats["seconds"], 0.75);
  EXPECT_EQ(stats["directory"], scratch.path("cache"));
  EXPECT_THAT(run("stats", false).out, HasSubstr("images     3\n"));
  const Outcome bare = runCommand({"cache", "--cache-dir", scratch.path("cache")}, "/");
  EXPECT_EQ(bare.status, 0) << bare.err;
  EXPECT_EQ(bare.out, run("stats", false).out);
}

TEST_F(CacheCommand, ListShowsFactsOfTheKernels) {
  const json images = json::parse(run("list").out);
  ASSERT_EQ(images.size(), 3u);
  const std::map<std::string, std::string> forms = {{"image 1", "ptx"}, {"image 2", "object"}, {"image 3", "cubin"}};
  for (const json& image : images) {
    EXPECT_EQ(image["form"], forms.at(image["title"]));
    if (image["title"] != "image 3") continue;
    EXPECT_EQ(image["registers"], 32);
    EXPECT_EQ(image["spill_bytes"], 16);
    EXPECT_EQ(image["seconds"], 0.25);
    EXPECT_THAT(image["last_used"].get<std::string>(), testing::MatchesRegex("20..-..-..T..:..:..Z"));
  }
  EXPECT_THAT(run("list", false).out, testing::ContainsRegex(" +32 +16 +0\\.250  20.*Z  image 2\n"));
}

TEST_F(CacheCommand, VerifyReportsDamagedImages) {
  EXPECT_EQ(json::parse(run("verify").out), json::parse(R"({"images": 3, "bad": [], "file_remade": false})"));
  flipByte(file());
  const Outcome outcome = run("verify", false);
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(outcome.out, "3 images checked, 1 bad and removed\nbad: image 2\n");
  EXPECT_EQ(json::parse(run("stats").out)["images"], 2);
}

TEST_F(CacheCommand, VerifyNamesAFileWithoutATitle) {
  scratch.write("cache/" + imageFile(2), contentOf(file()).substr(0, 50));
  EXPECT_EQ(run("verify", false).out, "3 images checked, 1 bad and removed\nbad: " + imageFile(2) + "\n");
  EXPECT_EQ(json::parse(run("verify").out), json::parse(R"({"images": 2, "bad": [], "file_remade": false})"));
}

TEST_F(CacheCommand, ClearRemovesAll) {
  const json bytes = json::parse(run("stats").out)["bytes"];
  EXPECT_EQ(json::parse(run("clear").out)["removed_bytes"], bytes);
  EXPECT_EQ(json::parse(run("stats").out)["images"], 0);
  EXPECT_THAT(run("clear", false).out, HasSubstr("removed 0 bytes from "));
}

TEST_F(CacheCommand, ReadOnlyActionsChangeNothing) {
  const std::string before = state();
  for (const std::string action : {"stats", "list", "verify"}) {
    EXPECT_EQ(run(action).status, 0);
    EXPECT_EQ(state(), before) << action;
  }
  EXPECT_THAT(doctor(), HasSubstr("3 images"));
  EXPECT_EQ(state(), before);
}

TEST_F(CacheCommand, ForeignFilesAreNotChanged) {
  scratch.write("cache/" + imageFile(2), "a letter");
  const std::string before = state();
  for (const std::string action : {"stats", "list", "verify", "clear"}) {
    const Outcome outcome = run(action);
    EXPECT_EQ(outcome.status, 3) << action;
    EXPECT_THAT(outcome.err, HasSubstr(imageFile(2) + " is not a kernel image of sr-jit")) << action;
    EXPECT_EQ(outcome.out, "");
  }
  EXPECT_EQ(state(), before);
}

TEST_F(CacheCommand, LinksAreNotFollowed) {
  const std::string letter = scratch.write("letter", "dear");
  std::filesystem::remove(file());
  std::filesystem::create_symlink(letter, file());
  for (const std::string action : {"stats", "list", "verify", "clear"}) {
    const Outcome outcome = run(action);
    EXPECT_EQ(outcome.status, 3) << action;
    EXPECT_THAT(outcome.err, HasSubstr(imageFile(2) + " is a symbolic link")) << action;
  }
  EXPECT_THAT(doctor(), testing::ContainsRegex("missing +kernel cache +.*is a symbolic link"));
  EXPECT_EQ(contentOf(letter), "dear");
}

TEST_F(CacheCommand, FilesWritableByOthersAreNotTrusted) {
  chmod(scratch.path("cache").c_str(), 0777);
  for (const std::string action : {"stats", "list", "verify", "clear"}) {
    const Outcome outcome = run(action);
    EXPECT_EQ(outcome.status, 3) << action;
    EXPECT_THAT(outcome.err, HasSubstr("may be written by other users (mode 0777)")) << action;
  }
  EXPECT_THAT(doctor(), testing::ContainsRegex("missing +kernel cache +.*may be written by other users"));
}

TEST_F(CacheCommand, ClearLeavesLocksOfOthers) {
  const std::string lock = scratch.write("cache/Cargo.lock", "version = 4");
  EXPECT_EQ(run("clear").status, 0);
  EXPECT_EQ(contentOf(lock), "version = 4");
}

TEST_F(CacheCommand, ControlCharactersAreEscaped) {
  KernelKey key = keyNumber(4);
  key.title = "a\x1b[2J\nb";
  const auto cache = KernelCache::open({.directory = scratch.path("cache")});
  ASSERT_TRUE(cache->get(key, [] { return Result<KernelImage>(imageNumber(4)); }).ok());
  EXPECT_THAT(run("list", false).out, HasSubstr("a\\x1b[2J\\x0ab"));
  flipByte(scratch.path("cache/" + imageFile(4)));
  EXPECT_THAT(run("verify", false).out, HasSubstr("bad: a\\x1b[2J\\x0ab\n"));
}

TEST_F(CacheCommand, TheDirectoryComesFromTheEnvironmentToo) {
  const ScopedVariable directory("SRJIT_CACHE_DIR", scratch.path("cache"));
  const Outcome outcome = runCommand({"cache", "stats", "--json"}, "/");
  EXPECT_EQ(json::parse(outcome.out)["images"], 3);
}

TEST(CacheCommandFaults, ReadOnlyActionsCreateNothing) {
  const Scratch scratch;
  for (const std::string action : {"stats", "list", "verify", "clear"}) {
    const Outcome outcome = runCommand({"cache", action, "--cache-dir", scratch.path("none")}, "/");
    EXPECT_EQ(outcome.status, 0) << action << outcome.err;
  }
  EXPECT_THAT(scratch.list(), IsEmpty());
}

TEST(CacheCommandFaults, UnreadableDiskIsAMachineError) {
  const Scratch scratch;
  std::filesystem::create_directory(scratch.path(imageFile(1)));
  for (const std::string action : {"stats", "list", "verify", "clear"}) {
    const Outcome outcome = runCommand({"cache", action, "--cache-dir", scratch.path("")}, "/");
    EXPECT_EQ(outcome.status, 3) << action;
    EXPECT_THAT(outcome.err, HasSubstr(imageFile(1) + " is no regular file")) << action;
    EXPECT_EQ(outcome.out, "");
  }
}

TEST(CacheCommandFaults, WrongUsageIsRejected) {
  const Outcome outcome = runCommand({"cache", "empty"}, "/");
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.err, HasSubstr("'empty' is none of stats|list|verify|clear"));
}

}  // namespace
}  // namespace srjit
