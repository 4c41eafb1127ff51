// Reading a program's kernels from the cache on disk, as a second process does: found, read and checked, on one core.
// What the driver takes to load them is not in it.
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include "ir/numbers/random.h"
#include "runtime/cache/kernels.h"

namespace srjit {
namespace {

/// As many modules of as many bytes as 4,096 mixed expressions have.
constexpr std::size_t kImages = 32, kImageBytes = 375'000;

/// A cache directory with images, which are removed at the end of the process.
class StoredImages {
 public:
  StoredImages() : directory_(std::filesystem::temp_directory_path() / fmt::format("sr-jit-bench-{}", getpid())) {
    const auto cache = KernelCache::open({.directory = directory_});
    Random random(1);
    for (std::size_t i = 0; i < kImages; ++i) {
      KernelImage image{.code = std::vector<std::byte>(kImageBytes), .is_ptx = false, .kernels = {}};
      for (std::byte& byte : image.code) byte = static_cast<std::byte>(random.next());
      for (std::size_t k = 0; k < 4; ++k) image.kernels.push_back({fmt::format("rows_{}", k), 128, 0, 0, 0});
      keys.push_back({DigestBuilder().add(std::uint64_t{i}).finish(), fmt::format("image {}", i)});
      static_cast<void>(cache->get(keys.back(), [&] { return Result(image); }));
    }
  }
  ~StoredImages() {
    std::error_code ignored;
    std::filesystem::remove_all(directory_, ignored);
  }
  StoredImages(const StoredImages&) = delete;
  StoredImages& operator=(const StoredImages&) = delete;

  /// A cache that has nothing in memory.
  std::shared_ptr<KernelCache> open() const { return KernelCache::open({.directory = directory_}); }

  std::vector<KernelKey> keys;

 private:
  std::filesystem::path directory_;
};

void readImages(benchmark::State& state) {
  static const StoredImages stored;
  for (auto _ : state) {
    const auto cache = stored.open();
    const auto space = std::make_shared<KernelImage>();
    for (const KernelKey& key : stored.keys) {
      const auto image = cache->find(key, space);
      if (image == nullptr || image->code.size() != kImageBytes) state.SkipWithError("an image is lost");
    }
  }
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(kImages * kImageBytes));
}

BENCHMARK(readImages)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace srjit
