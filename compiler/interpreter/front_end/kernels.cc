// The kernels of the front end, only for LLVM's NVPTX target (CMakeLists.txt of this layer): those that
// compiler/interpreter/front_end/arguments.h describes, and what C++ needs where there is neither an operating system
// nor a library.
#include <cstddef>
#include <cstdint>
#include <new>

#include "compiler/interpreter/front_end/worker.h"

namespace {

// Of all workers. Written by every thread of a launch, which all write the same.
std::byte* memory;

unsigned threadNumber() {
  return __nvvm_read_ptx_sreg_ctaid_x() * __nvvm_read_ptx_sreg_ntid_x() + __nvvm_read_ptx_sreg_tid_x();
}
unsigned threadCount() { return __nvvm_read_ptx_sreg_nctaid_x() * __nvvm_read_ptx_sreg_ntid_x(); }

std::byte* ownMemory() { return memory + threadNumber() * srjit::kWorkerBytes; }
// The first bytes of a worker's memory count those in use.
std::uint64_t& usedBytes() { return *reinterpret_cast<std::uint64_t*>(ownMemory()); }

[[noreturn]] void endThread() {
  asm volatile("exit;");
  __builtin_unreachable();
}

}  // namespace

// A worker takes memory, and gives none back: its vectors keep theirs from expression to expression. One without memory
// left ends, and what it has not encoded is left to the host.
void* operator new(std::size_t bytes) {
  constexpr std::size_t kAlignment = srjit::kWorkerAlignment;
  const std::uint64_t first = usedBytes(), last = first + (bytes + kAlignment - 1) / kAlignment * kAlignment;
  if (last > srjit::kWorkerBytes) endThread();
  usedBytes() = last;
  return ownMemory() + first;
}
void operator delete(void*) noexcept {}
void operator delete(void*, std::size_t) noexcept {}

// The library's containers call these on errors that do not happen here.
namespace std {
void __throw_length_error(const char*) { endThread(); }
void __throw_bad_alloc() { endThread(); }
void __throw_bad_array_new_length() { endThread(); }
void __throw_out_of_range_fmt(const char*, ...) { endThread(); }
void __throw_logic_error(const char*) { endThread(); }
}  // namespace std

// The compiler calls these for some expressions.
extern "C" {
void abort() noexcept { endThread(); }
int memcmp(const void* a, const void* b, std::size_t bytes) noexcept {
  const auto *x = static_cast<const unsigned char*>(a), *y = static_cast<const unsigned char*>(b);
  for (; bytes > 0; --bytes, ++x, ++y) {
    if (*x != *y) return *x - *y;
  }
  return 0;
}
std::size_t strlen(const char* text) noexcept {
  std::size_t length = 0;
  while (text[length] != 0) ++length;
  return length;
}
}

namespace srjit {

void throwError(const Error&) { endThread(); }

// No log is given to a device's rewriter.
void Rewriter::reportFold(Op, const Operands&, NodeId) const {}
void Rewriter::reportRule(std::size_t, Op, const Operands&) const {}
void Rewriter::reportEnd(NodeId) const {}

extern "C" __attribute__((nvptx_kernel)) void srjit_encode(EncodeArguments arguments) {
  memory = arguments.memory;
  usedBytes() = kWorkerAlignment;
  DeviceWorker worker(arguments);
  for (unsigned e = threadNumber(); e < arguments.population.expressions; e += threadCount()) worker.encode(e);
}

extern "C" __attribute__((nvptx_kernel)) void srjit_link(LinkArguments arguments) {
  for (unsigned e = threadNumber(); e < arguments.population.expressions; e += threadCount()) linkProgram(arguments, e);
}

}  // namespace srjit
