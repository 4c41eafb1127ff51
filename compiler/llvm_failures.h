// How a program ends when LLVM itself fails: when it runs out of memory or meets a fatal error in its sense.
//
// LLVM is built without exceptions and cannot recover from either. Without a handler it aborts the process, or
// std::bad_alloc of its operator new unwinds through frames that were not made for that, which is undefined. No library
// that is built on LLVM can prevent it. A program can choose how it ends.
#pragma once

namespace srjit {

/// Ends the process. Called on the thread where LLVM failed, which may hold any lock, and perhaps without memory: it
/// must not allocate, throw or return. `reason` is a text of one line, "out of memory" where that is it.
using LlvmFailureHandler = void (*)(const char* reason);

/// Makes `handler` end the process where LLVM fails under a call of this library. For programs, not for libraries: it
/// sets LLVM's two error handlers and the std::new_handler of the whole process. Where operator new finds no memory
/// and its thread is not in LLVM, all is as before: the std::new_handler that was set decides, and without one
/// std::bad_alloc is thrown. To be called once, before any thread of the process uses LLVM.
void endWhereLlvmFails(LlvmFailureHandler handler);

}  // namespace srjit
