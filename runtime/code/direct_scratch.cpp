#include "runtime/code/direct_scratch.h"

#include <cstddef>
#include <utility>
#include <vector>

namespace srjit {
namespace {

constexpr std::size_t kMostBytes = std::size_t{128} << 20;  // that lie idle

template <class T>
std::size_t bytesOf(const std::vector<T>& array) {
  return array.capacity() * sizeof(T);
}

// Without the emitters, which hold no more than the largest graph takes, one per thread.
std::size_t bytesOf(const DirectScratch& scratch) {
  std::size_t bytes = bytesOf(scratch.image.code);
  for (const DirectPart& part : scratch.parts) {
    bytes += bytesOf(part.words) + bytesOf(part.groups) + bytesOf(part.parameters) + bytesOf(part.outputs) +
             bytesOf(part.exits) + bytesOf(part.refused);
  }
  return bytes;
}

}  // namespace

std::unique_ptr<DirectScratch> DirectScratchPool::take(const DirectOptions& options) {
  std::unique_ptr<DirectScratch> scratch;
  {
    const std::lock_guard lock(mutex_);
    scratch = std::move(idle_);
  }
  if (scratch && scratch->options == options) return scratch;
  if (!scratch) scratch = std::make_unique<DirectScratch>();
  scratch->options = options;
  scratch->emitters.emplace([options] { return DirectEmitter::create(options).value(); });
  return scratch;
}

void DirectScratchPool::giveBack(std::unique_ptr<DirectScratch> scratch) {
  if (bytesOf(*scratch) > kMostBytes) return;
  const std::lock_guard lock(mutex_);
  idle_.swap(scratch);
}

}  // namespace srjit
