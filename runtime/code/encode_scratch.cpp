#include "runtime/code/encode_scratch.h"

namespace srjit {

void EncodeScratch::trim(std::size_t most) {
  if (bytes() <= most) return;
  std::vector<EncodedChunk>().swap(before);
  std::vector<EncodedChunk>().swap(others);
  generation = {};
}

std::size_t EncodeScratch::bytes() const noexcept {
  std::size_t bytes = generation.bytes();
  for (const std::vector<EncodedChunk>* const some : {&chunks, &before, &others}) {
    for (const EncodedChunk& chunk : *some) bytes += chunk.bytes();
  }
  return bytes;
}

}  // namespace srjit
