// How a process ends if LLVM fails, and that the handlers change nothing otherwise.
#include "compiler/llvm_failures.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <limits>
#include <new>
#include <string>
#include <thread>

#include <gtest/gtest.h>
#include <llvm/Support/ErrorHandling.h>

#include "compiler/lowering/llvm_scope.h"

namespace srjit {
namespace {

constexpr int kEnded = 7, kThrown = 8, kReturned = 9;

struct End {
  int status;
  std::string reason;  ///< the reason that the handler received
};

int pipe_to_parent = -1;

void endHere(const char* reason) {
  static_cast<void>(!write(pipe_to_parent, reason, std::strlen(reason)));
  _exit(kEnded);
}

/// Runs `body` in a child process with a handler installed; kReturned if `body` returns.
template <class Body>
End inChild(Body body) {
  int ends[2];
  if (pipe(ends) != 0) return {-1, "no pipe"};
  const pid_t child = fork();
  if (child == 0) {
    pipe_to_parent = ends[1];
    try {
      body();
    } catch (const std::bad_alloc&) {
      _exit(kThrown);
    }
    _exit(kReturned);
  }
  close(ends[1]);
  End end{};
  char buffer[512];
  for (ssize_t n = 0; (n = read(ends[0], buffer, sizeof buffer)) > 0;) end.reason.append(buffer, std::size_t(n));
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  end.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return end;
}

/// Requests more memory than exists. The size is volatile, so the optimiser cannot remove the allocation.
void takeAllMemory() {
  volatile std::size_t bytes = std::numeric_limits<std::size_t>::max() / 4;
  ::operator delete(::operator new(bytes));
}

class LlvmFailures : public testing::Test {
 protected:
  void SetUp() override {
#ifdef SRJIT_SANITIZED
    GTEST_SKIP() << "the sanitizers' operator new does not call the new-handler";
#endif
  }
};

TEST_F(LlvmFailures, OutOfMemoryInLlvmEndsTheProcess) {
  const End end = inChild([] {
    endWhereLlvmFails(endHere);
    const LlvmScope scope;
    takeAllMemory();
  });
  EXPECT_EQ(end.status, kEnded);
  EXPECT_EQ(end.reason, "out of memory");
}

TEST_F(LlvmFailures, OutOfMemoryElsewhereThrows) {
  const End end = inChild([] {
    endWhereLlvmFails(endHere);
    {
      const LlvmScope outer;
      const LlvmScope inner;
    }
    takeAllMemory();
  });
  EXPECT_EQ(end.status, kThrown);
}

TEST_F(LlvmFailures, ScopesArePerThread) {
  const End end = inChild([] {
    endWhereLlvmFails(endHere);
    const LlvmScope scope;
    bool thrown = false;
    std::thread([&] {
      try {
        takeAllMemory();
      } catch (const std::bad_alloc&) {
        thrown = true;
      }
    }).join();
    if (thrown) throw std::bad_alloc();
  });
  EXPECT_EQ(end.status, kThrown);
}

TEST_F(LlvmFailures, OutsideOfLlvmThePreviousHandlerRuns) {
  const End end = inChild([] {
    std::set_new_handler([] { _exit(5); });
    endWhereLlvmFails(endHere);
    takeAllMemory();
  });
  EXPECT_EQ(end.status, 5);
}

TEST_F(LlvmFailures, FatalErrorsOfLlvmEndTheProcess) {
  const End fatal = inChild([] {
    endWhereLlvmFails(endHere);
    llvm::report_fatal_error("cannot select");
  });
  EXPECT_EQ(fatal.status, kEnded);
  EXPECT_EQ(fatal.reason, "LLVM failed: cannot select");
  const End memory = inChild([] {
    endWhereLlvmFails(endHere);
    llvm::report_bad_alloc_error("Allocation failed");
  });
  EXPECT_EQ(memory.status, kEnded);
  EXPECT_EQ(memory.reason, "out of memory");
}

}  // namespace
}  // namespace srjit
