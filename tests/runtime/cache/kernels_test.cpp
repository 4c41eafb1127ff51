#include "runtime/cache/kernels.h"

#include <atomic>
#include <cstdlib>
#include <latch>
#include <stdexcept>
#include <thread>

#include <gmock/gmock.h>
#include <tbb/parallel_for.h>

#include "tests/runtime/cache/images.h"

namespace srjit {
namespace {

using testing::HasSubstr;

std::shared_ptr<KernelCache> inMemory(std::uint64_t bytes = 1 << 20) {
  return KernelCache::open({.directory = "", .memory_bytes = bytes});
}

KernelCache::Make maker(std::uint64_t number, std::size_t bytes = 1000) {
  return [=]() -> Result<KernelImage> { return imageNumber(number, bytes); };
}

Result<KernelImage> mustNotBeCalled() { throw std::logic_error("make was called again"); }

TEST(KernelCache, MakesAnImageOnce) {
  const auto cache = inMemory();
  EXPECT_EQ(cache->find(keyNumber(1)), nullptr);
  const auto made = cache->get(keyNumber(1), maker(1));
  ASSERT_TRUE(made.ok());
  EXPECT_TRUE(sameImage(**made, imageNumber(1)));
  EXPECT_EQ(*cache->get(keyNumber(1), mustNotBeCalled), *made);
  EXPECT_EQ(cache->find(keyNumber(1)), *made);
  const CacheStats stats = cache->stats();
  EXPECT_EQ(stats.misses, 1u);
  EXPECT_EQ(stats.memory_hits, 2u);
  EXPECT_EQ(stats.disk_hits, 0u);
  EXPECT_EQ(stats.memory_images, 1u);
  EXPECT_DOUBLE_EQ(stats.compile_seconds, 0.25);
  EXPECT_DOUBLE_EQ(stats.saved_seconds, 0.5);
  EXPECT_EQ(stats.disk_fault, "");
}

TEST(KernelCache, FindUsesTheMemoryOfTheImageBefore) {
  const Scratch scratch;
  {
    const auto cache = KernelCache::open({.directory = scratch.path("")});
    for (const std::uint64_t i : {1U, 2U, 3U}) ASSERT_TRUE(cache->get(keyNumber(i), maker(i, 400'000 / i)).ok());
  }
  const auto cache = KernelCache::open({.directory = scratch.path("")});
  const auto space = std::make_shared<KernelImage>();
  const std::byte* memory = nullptr;
  for (const std::uint64_t i : {1U, 2U, 3U, 1U}) {
    const auto found = cache->find(keyNumber(i), space);
    ASSERT_EQ(found, space);
    EXPECT_TRUE(sameImage(*found, imageNumber(i, 400'000 / i)));
    if (memory == nullptr) memory = space->code.data();
    EXPECT_EQ(space->code.data(), memory);
  }
  EXPECT_EQ(cache->find(keyNumber(4), space), nullptr);
  EXPECT_TRUE(sameImage(*cache->find(keyNumber(2), space), imageNumber(2, 200'000)));
  ASSERT_TRUE(cache->get(keyNumber(3), maker(3)).ok());
  EXPECT_NE(cache->find(keyNumber(3), space), space) << "it is in memory";
}

TEST(KernelCache, MemoryIsBoundedWithLruEviction) {
  const auto cache = inMemory(35'000);
  for (std::uint64_t i = 0; i < 3; ++i) ASSERT_TRUE(cache->get(keyNumber(i), maker(i, 10'000)).ok());
  ASSERT_NE(cache->find(keyNumber(0)), nullptr);
  const auto made = cache->get(keyNumber(3), maker(3, 10'000));
  EXPECT_EQ(cache->find(keyNumber(1)), nullptr);
  EXPECT_NE(cache->find(keyNumber(0)), nullptr);
  EXPECT_EQ(cache->stats().evictions, 1u);
  EXPECT_EQ(cache->stats().memory_images, 3u);
  EXPECT_LE(cache->stats().memory_bytes, 35'000u);
  // Too large for memory, but returned.
  const auto large = cache->get(keyNumber(9), maker(9, 40'000));
  EXPECT_TRUE(sameImage(**large, imageNumber(9, 40'000)));
  EXPECT_EQ(cache->find(keyNumber(9)), nullptr);
  EXPECT_EQ(cache->stats().memory_images, 3u);
}

TEST(KernelCache, FailuresAreNotCached) {
  const auto cache = inMemory();
  const auto failed = cache->get(keyNumber(1), [] { return Result<KernelImage>(Error{Errc::kCompile, "no", {}}); });
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().code, Errc::kCompile);
  EXPECT_THROW(static_cast<void>(cache->get(keyNumber(1), mustNotBeCalled)), std::logic_error);
  EXPECT_TRUE(cache->get(keyNumber(1), maker(1)).ok());
}

TEST(KernelCache, ConcurrentRequestsMakeAnImageOnce) {
  const auto cache = inMemory();
  std::atomic<int> made = 0;
  std::latch begun(1), looked(1);
  std::vector<std::thread> threads;
  const auto slow = [&]() -> Result<KernelImage> {
    ++made;
    begun.count_down();
    looked.wait();
    while (cache->stats().waits < 4) std::this_thread::yield();
    return imageNumber(1);
  };
  threads.emplace_back([&] { EXPECT_TRUE(cache->get(keyNumber(1), slow).ok()); });
  begun.wait();
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] { EXPECT_TRUE(cache->get(keyNumber(1), mustNotBeCalled).ok()); });
  }
  EXPECT_TRUE(cache->get(keyNumber(2), maker(2)).ok());  // other keys do not wait
  EXPECT_EQ(cache->find(keyNumber(1)), nullptr);         // nor does find
  looked.count_down();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(made, 1);
  EXPECT_EQ(cache->stats().waits, 4u);
  EXPECT_EQ(cache->stats().misses, 2u);
}

TEST(KernelCache, WaitersRetryAfterAFailure) {
  for (const bool throws : {false, true}) {
    const auto cache = inMemory();
    std::latch begun(1);
    std::thread first([&] {
      const auto fails = [&]() -> Result<KernelImage> {
        begun.count_down();
        while (cache->stats().waits < 2) std::this_thread::yield();
        if (throws) throw std::runtime_error("no");
        return Error{Errc::kCompile, "no", {}};
      };
      if (throws) {
        EXPECT_THROW(static_cast<void>(cache->get(keyNumber(1), fails)), std::runtime_error);
      } else {
        EXPECT_FALSE(cache->get(keyNumber(1), fails).ok());
      }
    });
    begun.wait();
    std::atomic<int> made = 0;
    const auto works = [&]() -> Result<KernelImage> {
      ++made;
      return imageNumber(1);
    };
    std::thread second([&] { EXPECT_TRUE(cache->get(keyNumber(1), works).ok()); });
    std::thread third([&] { EXPECT_TRUE(cache->get(keyNumber(1), works).ok()); });
    for (std::thread* thread : {&first, &second, &third}) thread->join();
    EXPECT_EQ(made, 1);
  }
}

TEST(KernelCache, MakeMayRunTasksThatRequestTheSameKey) {
  const auto cache = inMemory();
  tbb::parallel_for(0, 64, [&](int i) {
    const auto parallel = [&]() -> Result<KernelImage> {
      tbb::parallel_for(0, 64, [](int) { std::this_thread::yield(); });
      return imageNumber(1);
    };
    const auto image = cache->get(keyNumber(static_cast<std::uint64_t>(i % 2)), parallel);
    EXPECT_TRUE(image.ok());
  });
  EXPECT_EQ(cache->stats().misses, 2u);
}

TEST(KernelCache, ManyThreadsShareFewKeysInLittleMemory) {
  const Scratch scratch;
  for (const std::string& directory : {std::string(), scratch.path("")}) {
    const auto cache = KernelCache::open({.directory = directory, .disk_bytes = 40'000, .memory_bytes = 30'000});
    std::vector<std::thread> threads;
    for (std::uint64_t t = 0; t < 8; ++t) {
      threads.emplace_back([&, t] {
        for (std::uint64_t i = 0; i < 200; ++i) {
          const std::uint64_t number = (i * 7 + t * 3) % 12;
          const auto image = cache->get(keyNumber(number), maker(number, 4'000));
          ASSERT_TRUE(image.ok());
          ASSERT_TRUE(sameImage(**image, imageNumber(number, 4'000)));
          if (i % 50 == 0) cache->writeFact("fact", std::to_string(i));
          if (i % 50 == 1) cache->stats();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    const CacheStats stats = cache->stats();
    EXPECT_LE(stats.memory_bytes, 30'000u);
    EXPECT_LE(stats.disk_bytes, 40'000u);
    EXPECT_EQ(stats.damaged, 0u);
    EXPECT_GE(stats.memory_hits + stats.disk_hits + stats.misses + stats.waits, 1600u);
    EXPECT_EQ(stats.disk_fault, "");
  }
}

TEST(KernelCache, DirectoriesAreSharedUnderAnyName) {
  const Scratch scratch;
  std::filesystem::create_directory_symlink(scratch.path("real"), scratch.path("link"));
  const auto cache = KernelCache::open({.directory = scratch.path("real")});
  EXPECT_EQ(KernelCache::open({.directory = scratch.path("link")}), cache);
  EXPECT_EQ(KernelCache::open({.directory = scratch.path("x/../real/")}), cache);
  EXPECT_NE(KernelCache::open({.directory = scratch.path("other")}), cache);
  EXPECT_NE(inMemory(), inMemory());
}

TEST(KernelCache, ImagesPersistOnDisk) {
  const Scratch scratch;
  {
    const auto cache = KernelCache::open({.directory = scratch.path("")});
    ASSERT_TRUE(cache->get(keyNumber(1), maker(1)).ok());
    cache->writeFact("rate", "5");
  }
  const auto cache = KernelCache::open({.directory = scratch.path("")});
  EXPECT_TRUE(sameImage(**cache->get(keyNumber(1), mustNotBeCalled), imageNumber(1)));
  EXPECT_NE(cache->find(keyNumber(1)), nullptr);
  EXPECT_EQ(cache->readFact("rate"), "5");
  EXPECT_EQ(cache->readFact("other"), std::nullopt);
  const CacheStats stats = cache->stats();
  EXPECT_EQ(stats.disk_hits, 1u);
  EXPECT_EQ(stats.memory_hits, 1u);
  EXPECT_EQ(stats.misses, 0u);
  EXPECT_EQ(stats.disk_images, 1u);
  EXPECT_DOUBLE_EQ(stats.saved_seconds, 0.5);
  EXPECT_EQ(cache->list()->size(), 1u);
  EXPECT_EQ(cache->verify()->images, 1u);
  EXPECT_GT(*cache->clear(), 1000u);
  EXPECT_EQ(cache->find(keyNumber(1)), nullptr);
  EXPECT_EQ(cache->readFact("rate"), std::nullopt);
}

TEST(KernelCache, FindDoesNotKeepDiskImagesInMemory) {
  const Scratch scratch;
  {
    ASSERT_TRUE(KernelCache::open({.directory = scratch.path("")})->get(keyNumber(1), maker(1)).ok());
  }
  const auto cache = KernelCache::open({.directory = scratch.path("")});
  const auto found = cache->find(keyNumber(1));
  ASSERT_NE(found, nullptr);
  EXPECT_TRUE(sameImage(*found, imageNumber(1)));
  EXPECT_EQ(cache->stats().memory_images, 0U);
  EXPECT_EQ(cache->stats().disk_hits, 1U);
}

TEST(KernelCache, DamageIsAMissAndIsCounted) {
  const Scratch scratch;
  {
    ASSERT_TRUE(KernelCache::open({.directory = scratch.path("")})->get(keyNumber(1), maker(1)).ok());
  }
  flipByte(scratch.path(imageFile(1)));
  {
    const auto cache = KernelCache::open({.directory = scratch.path("")});
    EXPECT_TRUE(sameImage(**cache->get(keyNumber(1), maker(1)), imageNumber(1)));
    EXPECT_EQ(cache->stats().damaged, 1u);
    EXPECT_EQ(cache->stats().misses, 1u);
  }
  EXPECT_NE(KernelCache::open({.directory = scratch.path("")})->find(keyNumber(1)), nullptr);
}

TEST(KernelCache, WorksInMemoryWithoutADisk) {
  const Scratch scratch;
  const auto cache = KernelCache::open({.directory = scratch.write("file", "") + "/below"});
  EXPECT_TRUE(cache->get(keyNumber(1), maker(1)).ok());
  EXPECT_NE(cache->find(keyNumber(1)), nullptr);
  cache->writeFact("rate", "5");
  EXPECT_EQ(cache->readFact("rate"), "5");
  EXPECT_THAT(cache->stats().disk_fault, HasSubstr("cannot use the cache directory"));
  for (const Errc code : {cache->list().error().code, cache->verify().error().code, cache->clear().error().code}) {
    EXPECT_EQ(code, Errc::kMachine);
  }
}

TEST(KernelCache, ClearToleratesAVanishedDirectory) {
  const Scratch scratch;
  const auto cache = KernelCache::open({.directory = scratch.path("cache")});
  EXPECT_TRUE(cache->get(keyNumber(1), maker(1)).ok());
  std::filesystem::remove_all(scratch.path("cache"));
  static_cast<void>(cache->clear());
  EXPECT_EQ(cache->stats().memory_images, 0U);
}

TEST(KernelCache, WriteFaultIsReportedUntilAWriteSucceeds) {
  const Scratch scratch;
  const auto cache = KernelCache::open({.directory = scratch.path("")});
  std::filesystem::create_directory(scratch.path(imageFile(1)));
  EXPECT_TRUE(cache->get(keyNumber(1), maker(1)).ok());
  EXPECT_EQ(cache->find(keyNumber(2)), nullptr);
  EXPECT_THAT(cache->stats().disk_fault, HasSubstr(imageFile(1) + " is no regular file"));
  std::filesystem::remove(scratch.path(imageFile(1)));
  EXPECT_TRUE(cache->get(keyNumber(3), maker(3)).ok());
  EXPECT_EQ(cache->stats().disk_fault, "");
}

TEST(CacheDirectory, ComesFromTheEnvironment) {
  const auto with = [](const char* own, const char* xdg, const char* home) {
    for (const auto& [name, value] : {std::pair{"SRJIT_CACHE_DIR", own}, {"XDG_CACHE_HOME", xdg}, {"HOME", home}}) {
      if (value != nullptr) {
        setenv(name, value, 1);
      } else {
        unsetenv(name);
      }
    }
    return cacheDirectory().string();
  };
  EXPECT_EQ(ended(startChild([&] {
              if (with("here", "/x", "/h") != "here") return 1;
              if (with("", "/x", "/h") != "/x/sr-jit") return 2;
              if (with(nullptr, nullptr, "/h") != "/h/.cache/sr-jit") return 3;
              if (with(nullptr, "relative", "/h") != "/h/.cache/sr-jit") return 4;
              if (!with(nullptr, nullptr, "").empty() || !with(nullptr, nullptr, nullptr).empty()) return 5;
              return 0;
            })),
            0);
}

}  // namespace
}  // namespace srjit
