// Scenarios with files: the cache of kernels, output files, the trace.
#include <filesystem>

#include "runtime/cache/kernels.h"
#include "runtime/platform/trace_events.h"
#include "tests/faults/scenarios.h"
#include "tests/runtime/cache/images.h"
#include "tools/files/output.h"

namespace srjit {
namespace {

constexpr unsigned kOfCache = kMemory | kReads | kFiles | kOpens | kNames | kFolders | kLocks;

std::shared_ptr<KernelCache> cacheIn(const World& world) {
  return KernelCache::open({.directory = world.scratch.path("cache")});
}

KernelCache::Make makerOf(std::uint64_t number) {
  return [number]() -> Result<KernelImage> {
    const SparedScope spared;
    return imageNumber(number);
  };
}

/// Adds whether an image is that of the number; a null one is a miss.
void addImage(Outcome& outcome, const std::shared_ptr<const KernelImage>& image, std::uint64_t number) {
  EXPECT_TRUE(image == nullptr || sameImage(*image, imageNumber(number))) << "another image";
  outcome.numbers.push_back(1);
}

/// Opens a cache, new or filled, and gets images: the disk may fail, but the images come.
Calls cachedImages(World& world) {
  const KernelKey first = keyNumber(1), second = keyNumber(2);
  return [&world, first, second] {
    Outcome outcome;
    for (int process = 0; process < 2; ++process) {
      std::shared_ptr<KernelCache> cache = tried([&] { return cacheIn(world); });
      for (const auto& [key, number] : {std::pair(first, 1U), std::pair(second, 2U)}) {
        const auto image = tried([&] { return cache->get(key, makerOf(number)); });
        if (outcome.isThere(image)) addImage(outcome, *image, number);
      }
      tried([&] { return cache->writeFact("a cost", "1.5"), true; });
      const std::optional<std::string> fact = tried([&] { return cache->readFact("a cost"); });
      EXPECT_TRUE(!fact || *fact == "1.5");
      addImage(outcome, tried([&] { return cache->find(first); }), 1);
      static_cast<void>(tried([&] { return cache->stats(); }));
      dropped(std::move(cache));
    }
    return outcome;
  };
}

/// What the command's `cache` does: totals, the list, a check, clearing.
Calls cacheMaintenance(World& world) {
  for (const std::uint64_t number : {1U, 2U, 3U}) {
    EXPECT_TRUE(cacheIn(world)->get(keyNumber(number), makerOf(number)).ok());
  }
  return [&world] {
    Outcome outcome;
    std::shared_ptr<KernelCache> cache = tried([&] { return cacheIn(world); });
    static_cast<void>(tried([&] { return cache->stats(); }));
    const auto list = tried([&] { return cache->list(); });
    if (outcome.isThere(list)) {
      for (const StoredImage& image : *list) EXPECT_TRUE(image.key.title.starts_with("image ")) << image.key.title;
    }
    outcome.isThere(tried([&] { return cache->verify(); }));  // what cannot be read counts as damage
    static_cast<void>(tried([&] { return cache->lock("a lock", [] { return true; }); }));  // its marks are removed
    outcome.isThere(tried([&] { return cache->clear(); }));
    const auto image = tried([&] { return cache->get(keyNumber(4), makerOf(4)); });
    if (outcome.isThere(image)) addImage(outcome, *image, 4);
    dropped(std::move(cache));
    return outcome;
  };
}

/// A file is complete or as it was before, and nothing else is left in its folder.
Calls outputFile(World& world, std::string_view before) {
  const std::string path = world.scratch.path("out.csv");
  return [&world, path, before, content = std::string(100'000, 'x')] {
    Outcome outcome;
    std::filesystem::remove(path);
    if (!before.empty()) world.scratch.write("out.csv", before);
    std::optional<Result<OutputFile>> file = tried([&] { return std::optional(OutputFile::create(path)); });
    bool is_published = false;
    if (outcome.isThere(*file)) {
      tried([&] { return (*file)->write(content), true; });
      const Status published = tried([&] { return (*file)->publish(); });
      is_published = published.ok();
      if (!published) outcome.errors.push_back(published.error());
    }
    dropped(std::move(file));
    const std::vector<std::string> names = world.scratch.list();
    const bool is_there = is_published || !before.empty();
    EXPECT_EQ(names, is_there ? std::vector<std::string>{"out.csv"} : std::vector<std::string>()) << "files are left";
    if (is_there) {
      EXPECT_EQ(contentOf(path), is_published ? content : before);
    }
    if (outcome.errors.empty()) outcome.numbers.push_back(1);
    return outcome;
  };
}

Calls newFile(World& world) { return outputFile(world, ""); }
Calls replacedFile(World& world) { return outputFile(world, "what was there"); }

/// A trace to a file changes no results; the end of the trace reports lost events.
Calls tracedLosses(World& world) {
  const auto calls = predictions(world, {.device = "cuda:0", .math = Math::kStrict, .tier = Tier::kInterpret});
  return [calls, path = world.scratch.path("trace.json")] {
    const Status started = tried([&] { return traceToFile(path); });
    Outcome outcome = calls();
    const Status ended = tried([] { return endTrace(); });
    for (const Status& status : {started, ended}) {
      if (!status) outcome.errors.push_back(status.error());
    }
    return outcome;
  };
}

/// An engine whose kernels come to and from the disk.
Calls cachedEngine(World& world) {
  return firstUse(world, {.device = "cuda:0",
                          .math = Math::kStrict,
                          .tier = Tier::kCompile,
                          .cache_directory = world.scratch.path("cache")});
}

FakeOptions plainGpu() { return {}; }

constexpr Scenario kFileScenarios[] = {
    {"CachedImages", kOfCache, cachedImages, plainGpu, true},
    {"CacheMaintenance", kOfCache | kMarks, cacheMaintenance, plainGpu, true},
    {"CachedEngine", kMemory | kGpu | kKernels | kOpens, cachedEngine, plainGpu, true},
    {"OutputFile", kMemory | kFiles | kOpens | kNames | kSyncs, newFile, plainGpu, true},
    {"ReplacedFile", kMemory | kFiles | kOpens | kNames | kSyncs, replacedFile, plainGpu, true},
    {"Trace", kMemory | kFiles, tracedLosses, plainGpu, true},
};

}  // namespace

std::span<const Scenario> fileScenarios() { return kFileScenarios; }

}  // namespace srjit
