#include "runtime/code/encode_scratch.h"

namespace srjit {

void EncodedChunk::begin(std::size_t first_chosen, std::size_t last_chosen, std::size_t number_of_section) {
  first = first_chosen;
  last = last_chosen;
  section = number_of_section;
  code.tokens.clear();
  code.slots = 0;
  lengths.clear();
  parameters.clear();
  failures.clear();
  tokens = nodes = 0;
  operators.assign(kOpCount, 0);
  variables.clear();
}

std::size_t EncodedChunk::bytes() const noexcept {
  return code.tokens.capacity() * sizeof(DeviceToken) + lengths.capacity() * sizeof(std::uint32_t) +
         parameters.size() * sizeof(double) + variables.capacity();
}

std::size_t EncodeScratch::bytes() const noexcept {
  std::size_t bytes = 0;
  for (const EncodedChunk& chunk : chunks) bytes += chunk.bytes();
  return bytes;
}

}  // namespace srjit
