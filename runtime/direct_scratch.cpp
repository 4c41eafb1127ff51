#include "runtime/direct_scratch.h"

#include <cstddef>
#include <utility>

namespace srjit {
namespace {

constexpr std::size_t kMostBytes = std::size_t{128} << 20;  // that lie idle

std::size_t bytesOf(const DirectScratch& scratch) {
  std::size_t bytes = scratch.image.code.capacity();
  for (const DirectPart& part : scratch.parts) bytes += part.words.capacity() * sizeof(sass::Word);
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
