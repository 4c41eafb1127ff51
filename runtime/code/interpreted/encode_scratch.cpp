#include "runtime/code/interpreted/encode_scratch.h"

namespace srjit {

std::span<EncodedChunk> EncodedChunks::add(std::size_t count) {
  const std::size_t first = used_;
  if (first + count > all_.size()) all_.resize(first + count);
  used_ = first + count;
  return std::span(all_).subspan(first, count);
}

std::size_t EncodedChunks::bytes() const noexcept {
  std::size_t bytes = 0;
  for (const EncodedChunk& chunk : all_) bytes += chunk.bytes();
  return bytes;
}

void EncodeScratch::trim(std::size_t most) {
  if (bytes() <= most) return;
  before = {};
  others = {};
  generation = {};
}

std::size_t EncodeScratch::bytes() const noexcept {
  return generation.bytes() + chunks.bytes() + before.bytes() + others.bytes();
}

}  // namespace srjit
