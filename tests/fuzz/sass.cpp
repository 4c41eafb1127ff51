// Decodes any words as machine instructions. Invariants: encoding gives the word back; an instruction prints, and so
// does a listing of all.
#include <cstdint>
#include <vector>

#include "compiler/sass/cubin.h"
#include "compiler/sass/encode.h"
#include "compiler/target/architecture.h"
#include "tests/fuzz/harness/bytes.h"

namespace {

using namespace srjit;
using fuzz::require;

/// Any word, or one of an instruction of the table with some bits changed.
sass::Word wordFrom(fuzz::ByteReader& bytes, unsigned architecture) {
  const std::uint8_t kind = bytes.byte();
  if (kind % 4 == 0) return {bytes.little<std::uint64_t>(), bytes.little<std::uint64_t>()};
  sass::Instruction instruction;
  instruction.form = static_cast<sass::Form>(bytes.below(sass::kForms));
  if (!sass::isAvailable(instruction.form, architecture)) instruction.form = sass::Form::kNop;
  sass::Word word = sass::encode(instruction, architecture);
  for (unsigned changes = kind % 4; changes > 0; --changes) {
    const unsigned bit = bytes.byte() % 128, length = bytes.byte() % 16;
    const std::uint64_t value = bytes.little<std::uint16_t>() & ((1U << length) - 1);
    (bit < 64 ? word.low : word.high) ^= value << bit % 64;
  }
  return word;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::ByteReader bytes(data, size);
  const auto architectures = directArchitectures();
  const unsigned architecture = architectures[bytes.below(architectures.size())];
  CubinKernel kernel;
  kernel.name = "fuzz";
  while (!bytes.isEmpty() && kernel.code.size() < 32) kernel.code.push_back(wordFrom(bytes, architecture));
  const auto decoded = sass::decodeAll(kernel.code, architecture);
  for (std::size_t i = 0; i < decoded.size(); ++i) {
    if (!decoded[i]) continue;
    const std::string text = sass::print(*decoded[i], true);
    require(!text.empty(), "an instruction prints");
    require(sass::encode(*decoded[i], architecture) == kernel.code[i], "encoding gives the word back", text);
  }
  require(!sass::listing(kernel, architecture).empty(), "a kernel has a listing");
  require(kernel.body().size() <= kernel.code.size(), "the body is in the code");
  return 0;
}
