// Decodes any bytes to the record of an image in the kernel cache. Invariants: facts that are read are written and read
// back; a record is sound with its own checksum, and not with a byte changed.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include "runtime/cache/image_record.h"
#include "tests/fuzz/harness/bytes.h"

namespace {

using namespace srjit;
using fuzz::require;

bool sameFacts(const KernelFacts& a, const KernelFacts& b) {
  return a.name == b.name && a.registers == b.registers && a.stack_bytes == b.stack_bytes &&
         a.spill_store_bytes == b.spill_store_bytes && a.spill_load_bytes == b.spill_load_bytes;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::ByteReader bytes(data, size);
  ImageRecord record;
  const std::uint8_t options = bytes.byte();
  for (std::uint8_t& byte : record.key.digest) byte = static_cast<std::uint8_t>(options * 7);
  record.key.title = fuzz::textOf(bytes.take(bytes.below(16)));
  record.image.is_ptx = options % 2 == 1;
  record.image.seconds = bytes.number();
  const auto code = std::as_bytes(bytes.take(bytes.byte()));
  record.image.code.assign(code.begin(), code.end());
  record.facts = fuzz::textOf(bytes.rest());

  const auto facts = factsIn(record.facts);
  record.checksum = checksumOf(record.key, record.image, record.facts);
  require(record.isSound() == facts.has_value(), "a record whose facts can be read is sound", record.facts);
  if (facts) {
    const std::string text = textOfFacts(*facts);
    const auto back = factsIn(text);
    require(back.has_value() && std::ranges::equal(*back, *facts, sameFacts), "facts read back", text);
  }
  ImageRecord changed = record;
  if (!changed.image.code.empty()) {
    changed.image.code[options % changed.image.code.size()] ^= std::byte{1};
    require(!changed.isSound(), "changed code fails its checksum", record.facts);
  }
  changed = record;
  changed.facts += ' ';
  require(!changed.isSound(), "changed facts fail their checksum", record.facts);
  return 0;
}
