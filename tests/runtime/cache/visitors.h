// Other processes that use a directory of kernels while a test does.
#pragma once

#include <spawn.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "runtime/platform/clock.h"
#include "tests/runtime/cache/stores.h"

namespace srjit {

/// What a visitor does: writes, reads and checks images of its own, and empties the directory at times, until there is
/// a file `end` or its parent has ended. Gives the exit status of its process.
inline int visitCache(const std::string& directory, const std::string& end) {
  constexpr std::uint64_t kImages = 12;
  constexpr std::size_t kBytes = 4'000;
  const pid_t parent = getppid();
  Random random(static_cast<std::uint64_t>(getpid()));
  std::size_t compared = 0;
  while (!std::filesystem::exists(end) && getppid() == parent) {
    const auto store = DiskStore::open(directory, kStoreBudget);
    if (!store) continue;
    for (int i = 0; i < 10; ++i) {
      const std::uint64_t number = random.below(kImages);
      const auto read = (*store)->read(keyNumber(number));
      if (!read || !*read) {
        put(**store, number, kBytes);
      } else if (sameImage(**read, imageNumber(number, kBytes))) {
        ++compared;
      } else {
        return 2;
      }
    }
    if ((*store)->damaged() != 0) return 3;
    if (random.below(8) == 0) static_cast<void>((*store)->clear());
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return compared > 0 ? 0 : 4;
}

/// Processes that run visitCache(). They are this program again, since a child of a fork() inherits the locks that
/// other threads hold: a test that uses visitors has, in a suite `CacheVisit`, the test
///
///   TEST(CacheVisit, OfAnotherProcess) { CacheVisitors::visitIfAsked(); }
///
/// The destructor ends them, and so does the end of this process.
class CacheVisitors {
 public:
  explicit CacheVisitors(std::size_t count) {
    std::string directory = std::string(kDirectory) + '=' + cache_.path("");
    std::string end = std::string(kEnd) + '=' + control_.path("end");
    std::vector<char*> variables{directory.data(), end.data()};
    for (char** variable = environ; *variable != nullptr; ++variable) variables.push_back(*variable);
    variables.push_back(nullptr);
    for (std::size_t i = 0; i < count; ++i) {
      const char* const words[] = {"/proc/self/exe", "--gtest_filter=CacheVisit.*", "--gtest_brief=1", nullptr};
      pid_t child = -1;
      if (posix_spawn(&child, words[0], nullptr, nullptr, const_cast<char* const*>(words), variables.data()) == 0) {
        children_.push_back(child);
      }
    }
    EXPECT_EQ(children_.size(), count);
  }
  CacheVisitors(const CacheVisitors&) = delete;
  CacheVisitors& operator=(const CacheVisitors&) = delete;
  ~CacheVisitors() { end(); }

  std::string directory() const { return cache_.path(""); }

  /// Ends the visitors: none found an image that nobody wrote, and all files are sound.
  void expectSoundEnd() {
    for (const int status : end()) EXPECT_EQ(status, 0) << "a process that used the same directory";
    const auto found = openIn(cache_)->verify();
    ASSERT_TRUE(found) << found.error().message;
    EXPECT_TRUE(found->bad.empty());
  }

  /// In a visitor: visits, and ends the process.
  static void visitIfAsked() {
    const char *const directory = std::getenv(kDirectory), *const end = std::getenv(kEnd);
    if (directory != nullptr && end != nullptr) _exit(visitCache(directory, end));
    GTEST_SKIP() << "no test asks for a visitor";
  }

 private:
  static constexpr const char *kDirectory = "SRJIT_TEST_VISITED_CACHE", *kEnd = "SRJIT_TEST_END_OF_VISIT";

  /// Exit statuses, or 128 plus the signal; a visitor that goes on for minutes is killed.
  std::vector<int> end() {
    constexpr double kPatience = 120;
    control_.write("end", "");
    std::vector<int> statuses;
    const Stopwatch watch;
    for (const pid_t child : children_) {
      siginfo_t state{};
      while (watch.seconds() < kPatience &&
             waitid(P_PID, static_cast<id_t>(child), &state, WEXITED | WNOWAIT | WNOHANG) == 0 && state.si_pid == 0) {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
      if (state.si_pid == 0) kill(child, SIGKILL);
      statuses.push_back(ended(child));
    }
    children_.clear();
    return statuses;
  }

  const Scratch cache_, control_;
  std::vector<pid_t> children_;
};

}  // namespace srjit
