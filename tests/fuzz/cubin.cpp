// Reads any bytes as a cubin. Invariants: it is refused, or its kernels are no larger than it and can be listed; a
// kernel that is written again reads back.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "compiler/sass/cubin.h"
#include "compiler/target/architecture.h"
#include "tests/fuzz/harness/bytes.h"

namespace {

using namespace srjit;
using fuzz::require;

void checkWritten(const CubinKernel& kernel, unsigned architecture) {
  constexpr unsigned kMostRegisters = 255;
  const auto is_known = std::ranges::find(directArchitectures(), architecture) != directArchitectures().end();
  if (!is_known || kernel.registers > kMostRegisters) return;
  KernelDescription description;
  description.name = kernel.name;
  description.code = {kernel.body()};
  description.registers = kernel.registers;
  const std::vector<std::byte> image = writeCubin({&description, 1}, architecture);
  const auto back = readCubin(image);
  require(back.ok() && back->kernels.size() == 1, "a kernel that is written is read", kernel.name);
  const CubinKernel& read = back->kernels.front();
  require(read.name == kernel.name && read.registers == kernel.registers, "with its facts", kernel.name);
  require(read.code.size() >= kernel.body().size() &&
              std::ranges::equal(std::span(read.code).first(kernel.body().size()), kernel.body()),
          "and its code", kernel.name);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span image = std::as_bytes(std::span(data, size));
  const auto contents = readCubin(image);
  const auto listing = sass::listing(image);
  require(contents.ok() == listing.ok(), "what is read is listed");
  if (!contents) {
    require(contents.error().code == Errc::kCompile && !contents.error().message.empty(), "an error says why");
    return 0;
  }
  for (const CubinKernel& kernel : contents->kernels) {
    require(kernel.code.size() * sizeof(sass::Word) <= size, "code is in the image", kernel.name);
    require(kernel.constants.empty() || (kernel.constants.data() >= image.data() &&
                                         kernel.constants.data() + kernel.constants.size() <= image.data() + size),
            "constants are in the image", kernel.name);
  }
  if (!contents->kernels.empty()) checkWritten(contents->kernels.front(), contents->architecture);
  return 0;
}
