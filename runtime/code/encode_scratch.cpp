#include "runtime/code/encode_scratch.h"

namespace srjit {

std::size_t EncodeScratch::bytes() const noexcept {
  std::size_t bytes = generation.bytes();
  for (const std::vector<EncodedChunk>* const some : {&chunks, &before}) {
    for (const EncodedChunk& chunk : *some) bytes += chunk.bytes();
  }
  return bytes;
}

}  // namespace srjit
