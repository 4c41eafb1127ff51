// arc4random() for LLVM, which names its temporary files with it. glibc has it from 2.36 on, and nothing else here
// needs more than 2.34: with this one, the wheel is a manylinux_2_35 (which libstdc++ asks for).
#include <unistd.h>

#include <cstdint>
#include <cstdlib>

extern "C" std::uint32_t arc4random() {
  std::uint32_t number = 0;
  // It has no way to fail, and neither has getentropy() for so few bytes on a kernel that has random numbers.
  if (getentropy(&number, sizeof number) != 0) std::abort();
  return number;
}
