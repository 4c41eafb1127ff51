#include "runtime/code/direct_scratch.h"

#include <utility>
#include <vector>

namespace srjit {
namespace {

template <class T>
std::size_t bytesOf(const std::vector<T>& array) {
  return array.capacity() * sizeof(T);
}

}  // namespace

std::size_t DirectScratch::bytes() const noexcept {
  std::size_t bytes = bytesOf(image.code);
  for (const DirectPart& part : parts) {
    bytes += bytesOf(part.words) + bytesOf(part.groups) + bytesOf(part.parameters) + bytesOf(part.outputs) +
             bytesOf(part.exits) + bytesOf(part.refused);
  }
  return bytes;
}

std::unique_ptr<DirectScratch> takeDirectScratch(DirectScratchPool& pool, const DirectOptions& options) {
  std::unique_ptr<DirectScratch> scratch = pool.take();
  if (scratch && scratch->options == options) return scratch;
  if (!scratch) scratch = std::make_unique<DirectScratch>();
  scratch->options = options;
  scratch->emitters.emplace([options] { return DirectEmitter::create(options).value(); });
  return scratch;
}

}  // namespace srjit
