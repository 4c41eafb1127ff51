// Points where the machine can fail the library: allocations and calls of the system. They are counted, and
// one fails on demand. (Calls of the driver fail in its model, tests/gpu_model/fake_driver.h.)
//
// How it works, in release builds and under AddressSanitizer alike: this program defines `operator new` in all its
// forms (memory.cpp), and the system's functions by their names in libc (system_calls.cpp). A program's definitions
// come before those of shared libraries, so libtbb, libstdc++ and libLLVM call them, too. The functions
// make the system call themselves. AddressSanitizer's definitions of the same names are weak; it goes on checking what
// malloc gives.
//
// Not counted are:
// - What runs under a SparedScope: models of the machine, and tests.
// - Allocations under an LlvmScope: LLVM cannot recover (docs/internals/reliability.md, "Memory").
// - Memory of libraries that does not come from `operator new`: oneTBB's tasks, the memory of exceptions, glibc's own.
// - Calls that glibc makes inside of its own functions, such as the mmap of malloc, which are bound there.
#pragma once

#include <atomic>
#include <cstddef>
#include <initializer_list>
#include <span>
#include <string_view>

namespace srjit {

enum class PointKind { kAllocation, kSystem };

/// Which call fails.
struct Injection {
  PointKind kind;
  std::size_t n;                                 ///< the n-th that counts, from 1; 0: none
  bool is_lasting;                               ///< and every later one
  std::span<const std::string_view> calls = {};  ///< kSystem: names of the functions that count
  int number = 0;                                ///< kSystem: errno, or what pthread_create gives
};

/// Plans it, and counts from 0. From any thread. No library code may run on other threads when it is planned.
void inject(const Injection& injection);
/// Ends it, and gives how many calls counted.
std::size_t endInjection() noexcept;
/// Whether a call has failed since inject().
bool hasFailed() noexcept;

/// Counts a call; whether it fails. `name` only of kSystem.
bool failsHere(PointKind kind, std::string_view name = {}) noexcept;
/// The errno of the injection.
int injectedNumber() noexcept;

/// `operator new` calls minus `operator delete` calls of the process so far.
std::ptrdiff_t liveAllocations() noexcept;

}  // namespace srjit
