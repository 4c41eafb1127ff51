// What SECURITY.md promises of cache files from elsewhere: nothing of them is used or changed.
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "tests/gpu_model/device_engine.h"
#include "tests/tools/process.h"

namespace srjit {
namespace {

using testing::HasSubstr;

/// A file in the place of an image of the cache that is none.
struct HostileCache {
  const char* name;
  const char* script;   ///< makes $file
  const char* message;  ///< a part of standard error
};

void PrintTo(const HostileCache& cache, std::ostream* stream) { *stream << cache.name; }

/// Names, kinds, modes, targets of links, times of the last change and contents of all that is in the folder.
std::string stateOf(const Scratch& scratch) {
  const Outcome listed = runShell(
      "find . -printf '%p %y %m %l %T@ %s\\n' | sort && find . -type f -exec cksum {} + | sort", scratch.path(""));
  EXPECT_EQ(listed.status, 0) << listed.err;
  return listed.out;
}

/// A cache of one engine, in which all files were replaced.
class HostileCaches : public testing::TestWithParam<HostileCache> {
 protected:
  HostileCaches() {
    scratch_.write("other", "another file\n");
    losses_ = losses();
    const Outcome made =
        runShell("umask 022; cd cache; for file in *; do rm $file; " + std::string(GetParam().script) + "; done",
                 scratch_.path(""));
    EXPECT_EQ(made.status, 0) << made.err;
  }

  Losses losses() const {
    FakeMachine machine;
    const Engine engine = machine.engine({.math = Math::kStrict, .cache_directory = scratch_.path("cache")});
    Losses losses = lossesOf(engine, workload_, Tier::kCompile, {});
    EXPECT_GT(machine.images->count("rows"), 0U) << "kernels are made, which a cache would keep";
    return losses;
  }

  Scratch scratch_;
  const Workload workload_ = arithmeticWorkload(1, 20, 100, Precision::kF32);
  Losses losses_;
};

TEST_P(HostileCaches, AreNeitherUsedNorChangedByTheCommand) {
  const std::string before = stateOf(scratch_);
  EXPECT_THAT(before, testing::AllOf(HasSubstr(".kernel "), HasSubstr(".fact ")));
  for (const char* action : {"stats", "list", "verify", "clear"}) {
    const Outcome outcome = runCommand({"cache", action, "--cache-dir", "cache"}, scratch_.path(""));
    EXPECT_EQ(outcome.status, 3) << action;
    EXPECT_EQ(outcome.out, "") << action;
    EXPECT_THAT(outcome.err,
                testing::ContainsRegex("/cache/[0-9a-f]+.(kernel|fact) is " + std::string(GetParam().message)))
        << action;
    EXPECT_EQ(stateOf(scratch_), before) << action;
  }
}

TEST_P(HostileCaches, AreNeitherUsedNorChangedByEngines) {
  const std::string before = stateOf(scratch_);
  expectSameLosses(losses(), losses_, "with a hostile cache");
  expectSameLosses(losses_, lossesOf(cpuEngine(Precision::kF32), workload_, Tier::kInterpret, {}), "without a cache");
  EXPECT_EQ(stateOf(scratch_), before);
}

constexpr const char* kNoImage = "not a kernel image of sr-jit, so it is neither used nor changed; delete it";
INSTANTIATE_TEST_SUITE_P(
    All, HostileCaches,
    testing::Values(HostileCache{"NoImage", "echo no image >$file", kNoImage},
                    HostileCache{"LinkToAFile", "ln -s ../other $file", "a symbolic link; remove it"},
                    HostileCache{"LinkToNothing", "ln -s ../none $file", "a symbolic link; remove it"},
                    HostileCache{"Folder", "mkdir $file", "no regular file; remove it"},
                    HostileCache{"Pipe", "mkfifo $file", "no regular file; remove it"},
                    HostileCache{"OtherHeader", "printf 'sr-jit imagf\\1\\0\\0\\0' >$file", kNoImage},
                    HostileCache{"Database", "printf 'SQLite format 3\\0\\20\\0\\377\\377' >$file", kNoImage}),
    [](const auto& cache) { return std::string(cache.param.name); });

}  // namespace
}  // namespace srjit
